"""Engines as folders with an `engine.toml`: in `engines/`, in `services/`, or the user's own.

TIDEGAUGE_ENGINES lists the user's folders, separated as in PATH. Each is one engine or contains
several.

An engine that is installed at first use has a folder:

    <installed_engines>/NAME/venv      Python packages; `installed.lock` is their lock
    <installed_engines>/NAME/jars      jars, a folder per use, and `installed.lock`
    <installed_engines>/NAME/classes   compiled Java; `installed.sha256` is that of the sources

of another version than its default NAME-VERSION.

deploy/local/engines.py writes them.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.engine import EngineSpec
from schemas.pipeline import Pipeline
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from services.runtime.before_install import has_python
from services.runtime.files import parse_toml
from services.runtime.settings import ROOT, ServiceSettings

FILE = "engine.toml"
FOLDERS = "TIDEGAUGE_ENGINES"


STAMP = "installed.lock"
CLASSES_STAMP = "installed.sha256"
JAR_FOLDERS = ("jars", "lib")  # subfolders of a package that contains jars
RUN, COMPILER = "run", "compiler"  # folders of an engine's jars


@dataclass(frozen=True)
class Engine:
    """An engine and the folder that defines it. version: empty for its default."""

    spec: EngineSpec
    folder: Path
    version: str = ""

    def at(self, version: str) -> "Engine":
        """The engine in another version; empty: its default. Raises DefinitionError."""
        default = Installed(self, Path()).version()
        if version in ("", self.version, default):
            return self
        if version not in self.spec.versions:
            known = tuple(filter(None, (default, *self.spec.versions)))
            raise DefinitionError(unknown(f"version of {self.spec.name}", version, known))
        files = self.spec.versions[version].model_dump(exclude_defaults=True)
        install = self.spec.install.model_copy(update=files)
        return replace(
            self, spec=self.spec.model_copy(update={"install": install}), version=version
        )


def load_engines() -> dict[str, Engine]:
    """All engines by name, sorted. Raises DefinitionError."""
    result: dict[str, Engine] = {}
    for folder in _folders():
        engine = _load(folder)
        if engine.spec.name in result:
            raise DefinitionError(
                f"Two engines are named {engine.spec.name!r}:"
                f" {result[engine.spec.name].folder} and {folder}."
            )
        result[engine.spec.name] = engine
    return dict(sorted(result.items()))


def load_engine(name: str) -> Engine:
    """One engine by name. Raises DefinitionError."""
    named = [folder for folder in _folders() if _name(folder) == name]
    if len(named) != 1:
        raise DefinitionError(unknown("engine", name, tuple(load_engines())))
    return _load(named[0])


def engine_for(pipeline: Pipeline) -> Engine:
    """The engine of a pipeline in its version. Raises DefinitionError."""
    return load_engine(pipeline.engine).at(pipeline.version)


def engine_of(pipeline: Pipeline) -> Engine | None:
    """The engine of a pipeline; None if it is not on this machine."""
    try:
        return engine_for(pipeline)
    except DefinitionError:
        return None


def make_folders_absolute() -> None:
    """Make the paths in TIDEGAUGE_ENGINES absolute for child processes in another folder. Raises
    DefinitionError for one that is not a folder."""
    folders = [Path(each) for each in os.environ.get(FOLDERS, "").split(os.pathsep) if each]
    for folder in folders:
        if not folder.is_dir():
            raise DefinitionError(f"{FOLDERS} names {folder}, which is not a folder.")
    if folders:
        os.environ[FOLDERS] = os.pathsep.join(str(folder.resolve()) for folder in folders)


def _folders() -> Iterator[Path]:
    for home in ("engines", "services"):
        yield from sorted(path.parent for path in (ROOT / home).glob(f"*/{FILE}"))
    for text in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)):
        folder = Path(text)
        if (folder / FILE).is_file():
            yield folder
        else:
            yield from sorted(path.parent for path in folder.glob(f"*/{FILE}"))


def _name(folder: Path) -> Any:
    """The name in the file of an engine; None if it is not TOML."""
    with suppress(OSError, ValueError):
        return _parsed((folder / FILE).read_bytes()).get("name")
    return None


@lru_cache
def _parsed(data: bytes) -> Mapping[str, Any]:
    """The content of a file. Comparing many runs asks for their engines again and again."""
    return parse_toml(data)


def _load(folder: Path) -> Engine:
    path = folder / FILE
    try:
        return Engine(EngineSpec.model_validate(_parsed(path.read_bytes())), folder.resolve())
    except ValidationError as error:
        raise DefinitionError(f"{path}: {first_mistake(error)}.") from error
    except (OSError, ValueError) as error:
        raise DefinitionError(f"{path}: {' '.join(str(error).split())}.") from error


@dataclass(frozen=True)
class Installed:
    """Paths of one engine's installation, existing or not. variables: further environment variables
    of its program."""

    engine: Engine
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> Path:
        """Its virtual environment."""
        return self.folder / "venv"

    @property
    def jars(self) -> Path:
        """Its jars."""
        return self.folder / "jars"

    @property
    def classes(self) -> Path:
        """Its compiled Java."""
        return self.folder / "classes"

    @property
    def python_lock(self) -> Path | None:
        """The lock of its Python packages; None without one."""
        name = self.engine.spec.install.python
        return self.engine.folder / name if name else None

    @property
    def jars_lock(self) -> Path | None:
        """The lock of its jars."""
        name = self.engine.spec.install.jars
        return self.engine.folder / name if name else None

    @property
    def sources(self) -> tuple[Path, ...]:
        """Its source folders."""
        return tuple(
            (self.engine.folder / name).resolve() for name in self.engine.spec.install.sources
        )

    @property
    def java_sources(self) -> tuple[Path, ...]:
        """The Java files to compile."""
        return tuple(path for folder in self.sources for path in sorted(folder.glob("*.java")))

    @property
    def sources_digest(self) -> str:
        """Digest of what the classes depend on: the sources and the lock of the jars."""
        digest = hashlib.sha256()
        lock = self.jars_lock
        for path in (*self.java_sources, *([lock] if lock else [])):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def lacking(self) -> tuple[str, ...]:
        """What is missing or outdated: `packages`, also if their Python was replaced or removed,
        `jars`, `classes`. Raises OSError if files of the engine are missing."""
        return tuple(self._lacking())

    def _lacking(self) -> Iterator[str]:
        is_same = self.python_lock and _same(self.python_lock, self.venv / STAMP)
        if self.python_lock and not (is_same and has_python(self.venv)):
            yield "packages"
        if self.jars_lock and not _same(self.jars_lock, self.jars / STAMP):
            yield "jars"
        stamp = self.classes / CLASSES_STAMP
        if self.java_sources and not (stamp.is_file() and stamp.read_text() == self.sources_digest):
            yield "classes"

    def version(self) -> str:
        """The engine's version from its locks, or that of its package if it has no environment of
        its own; empty if there is neither."""
        texts = [path.read_text() for path in (self.python_lock, self.jars_lock) if path]
        for name in self.engine.spec.install.versions:
            # NAME==VERSION is a package, GROUP:NAME:VERSION a jar.
            pattern = rf"(?m)(?:^{re.escape(name)}==|:{re.escape(name)}:)(\d[^\s;\\:]*)"
            result = (re.search(pattern, text) for text in texts)
            version = next((match[1] for match in result if match), "")
            if version:
                return version
            if not self.python_lock:
                with suppress(metadata.PackageNotFoundError):
                    return metadata.version(name)
        return ""

    def environment(self) -> dict[str, str]:
        """Environment variables of its program: PATH starts with its Python, CLASSPATH has its
        classes and jars, PYTHONPATH its sources. PATH does not include the inherited one."""
        result = dict(self.variables)
        if self.python_lock:
            result["PATH"] = str(self.venv / "bin")
        class_path = [str(self.classes)] if self.java_sources else []
        class_path += [str(self.jars / RUN / "*")] if self.jars_lock else []
        for package in self.engine.spec.install.jars_of:
            packages = sorted(self.venv.glob(f"lib/python3*/site-packages/{package}"))
            folders = (path / name for path in packages for name in JAR_FOLDERS)
            class_path += [f"{path}/*" for path in folders if path.is_dir()]
        if class_path:
            result["CLASSPATH"] = os.pathsep.join(class_path)
        if self.sources:
            result["PYTHONPATH"] = os.pathsep.join(map(str, self.sources))
        return result


def installed(engine: Engine, settings: ServiceSettings) -> Installed:
    """The place of an engine's installation."""
    name = "-".join(filter(None, (engine.spec.name, engine.version)))
    return Installed(engine, settings.installed_engines.resolve() / name)


def _same(wanted: Path, stamp: Path) -> bool:
    return stamp.is_file() and stamp.read_bytes() == wanted.read_bytes()
