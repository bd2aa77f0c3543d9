"""Domains as folders: `domains/NAME/` with `domain.toml` and the Avro schemas that it names.

Any other folder works too (`--domain PATH`). Optional files:

records.py      the class `Records`: makes the records of a load (schemas/records.py)
content.py      the class `Content`: options of a workload's [content]
recording       a key of domain.toml: the CSV or Parquet that a load replays without `records.py`;
                one for all inputs, or one for each of them by name
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ConfigDict, ValidationError

from schemas.codec import said_by
from schemas.content import Content
from schemas.domain import DomainSpec
from schemas.validation_errors import DefinitionError, first_mistake, unknown
from schemas.workload import Workload
from services.runtime.definitions import WORKLOADS_DIR, load_workload, names
from services.runtime.domain_columns import check_columns
from services.runtime.domain_tables import with_table
from services.runtime.settings import ROOT
from services.runtime.toml_files import read_toml

DOMAINS_DIR = ROOT / "domains"
FILE = "domain.toml"
MAX_FILES = 10_000


@dataclass(frozen=True)
class Domain:
    """A domain and its folder. recording: the file of each input, if the domain has any."""

    spec: DomainSpec
    folder: Path
    recording: dict[str, Path] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Finds it by `load_domain`: its name if it is installed, else its folder."""
        is_installed = self.folder.parent == DOMAINS_DIR.resolve()
        return self.folder.name if is_installed else str(self.folder)


def domain_names(directory: Path = DOMAINS_DIR) -> tuple[str, ...]:
    """Names of the domains of a directory, sorted."""
    return tuple(sorted(path.parent.name for path in directory.glob(f"*/{FILE}")))


def load_domain(name: str, directory: Path = DOMAINS_DIR) -> Domain:
    """One domain by name, or by the path of its folder. Raises DefinitionError."""
    folder = _folder(name, directory)
    if not (folder / FILE).is_file() and "/" in name:
        raise DefinitionError(f"{folder / FILE} is not a file.")
    if not (folder / FILE).is_file():
        here = f" The folder is ./{name}." if (Path(name) / FILE).is_file() else ""
        raise DefinitionError(unknown("domain", name, domain_names(directory)) + here)
    try:
        fields = read_toml(folder / FILE)
        schemas = fields["schemas"] = dict(_schema(path) for path in _newest(folder))
        fields["stages"] = [with_table(folder, one, schemas) for one in fields.get("stages", [])]
        recording = fields.pop("recording", {})
        spec = DomainSpec.model_validate(fields)
        check_columns(spec)
        files = _recording(folder.resolve(), spec, recording)
    except ValidationError as error:
        raise DefinitionError(f"{folder / FILE}: {first_mistake(error)}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DefinitionError(f"{folder / FILE}: {' '.join(str(error).split())}.") from error
    return Domain(spec, folder.resolve(), files)


def domain_with(workload: str) -> str | None:
    """The installed domain that has a workload of this name; None if none has, or if it is one of
    all domains. Raises DefinitionError if several have."""
    if workload in names(WORKLOADS_DIR):
        return None
    found = [one for one in domain_names() if workload in names(DOMAINS_DIR / one / "workloads")]
    if len(found) > 1:
        raise DefinitionError(
            f"The domains {' and '.join(found)} have a workload {workload!r}: choose with --domain."
        )
    return found[0] if found else None


def chosen_workload(name: str, domain: str | None) -> tuple[Domain, Workload]:
    """The workload by name or path, and its domain. domain: name or path of another domain to use.
    Raises DefinitionError."""
    domain = domain or domain_with(name)
    if domain is None:
        workload = load_workload(name)
        return load_domain(workload.domain), workload
    found = load_domain(domain)
    return found, load_workload_of(found, name)


def load_workload_of(domain: Domain, name: str) -> Workload:
    """A workload on a domain: from the domain's `workloads/`, else the load, phases and rules of an
    installed workload, on all stages. A file that names this domain, or none and has no content of
    another one, is used as it is. Raises DefinitionError."""
    own = domain.folder / "workloads"
    if not name.endswith(".toml") and (own / f"{name}.toml").is_file():
        found = load_workload(name, own)
    else:
        found = load_workload(name)
        if not _is_for(found, name, domain):
            content = Content(format=found.content.format, second_ms=found.content.second_ms)
            changed = {"content": content, "stages": (), "pipelines": (), "windows": {}}
            found = found.model_copy(update=changed)
    return found.model_copy(update={"domain": domain.spec.name})


def _is_for(workload: Workload, name: str, domain: Domain) -> bool:
    """Whether the settings of a workload, given by name or path, are meant for a domain."""
    is_file = name.endswith(".toml") and Path(name).resolve().parent != WORKLOADS_DIR.resolve()
    if is_file and "domain" not in workload.model_fields_set:
        try:
            content_of(domain, workload.content)
        except DefinitionError:  # such as a copy of an installed workload
            return False
        return True
    folder = _folder(workload.domain, DOMAINS_DIR).resolve()
    return workload.domain == domain.spec.name or folder == domain.folder


def _folder(name: str, directory: Path) -> Path:
    """The folder of a domain given by name, or by path."""
    return Path(name) if "/" in name else directory / name


def content_of(domain: Domain, content: Content) -> Content:
    """The content of a workload, validated against the options of the domain. Raises
    DefinitionError."""
    module = domain_module(domain, "content")
    model: type[Content] = getattr(module, "Content", _NoOptions)
    try:
        return model.model_validate(content.model_dump(exclude_unset=True))
    except ValidationError as error:
        raise DefinitionError(
            f"For the domain {domain.spec.name} {first_mistake(error, within='content')}."
        ) from error


def checked(workload: Workload, domain: Domain) -> Workload:
    """A workload with all options of its content, including the domain's. Raises
    DefinitionError."""
    content = content_of(domain, workload.content)
    if content.copies > 1 and workload.load.shape != "replay":
        raise DefinitionError("content.copies applies only to a load of the shape 'replay'.")
    return workload.model_copy(update={"content": Content.model_validate(content.model_dump())})


def domain_module(domain: Domain, name: str) -> ModuleType | None:
    """A module of the domain's folder; None if it does not exist. Raises DefinitionError.

    The folder is imported as a package, so its modules can import each other relatively. A change
    of any file in it makes a new package.
    """
    if not (domain.folder / f"{name}.py").is_file():
        return None
    package = f"tidegauge_domain_{folder_digest(domain.folder)[:32]}"
    if package not in sys.modules:
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(domain.folder)]
        sys.modules[package] = module_from_spec(spec)
    compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_module(f"{package}.{name}")
    except (Exception, SystemExit) as error:  # domain code may raise anything
        raise DefinitionError(f"{domain.folder / name}.py fails: {said_by(error)}.") from error
    finally:
        sys.dont_write_bytecode = compiles


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of a folder's files, except hidden and compiled ones.
    Raises DefinitionError."""
    digest = hashlib.sha256()
    try:
        for path in _files(folder):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    except OSError as error:
        raise DefinitionError(f"{folder} cannot be read: {error}.") from error
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_file() and not any(part[0] == "." or part == "__pycache__" for part in inside):
            count += 1
            if count > MAX_FILES:
                raise DefinitionError(f"{folder} has more than {MAX_FILES} files.")
            yield path


class _NoOptions(Content):
    """Content of a domain without options of its own."""

    model_config = ConfigDict(extra="forbid")


def _recording(folder: Path, spec: DomainSpec, given: Any) -> dict[str, Path]:
    """The recorded file of each input. Raises ValueError."""
    inputs = [one.name for one in spec.inputs]
    files = dict.fromkeys(inputs, given) if isinstance(given, str) else given
    if not isinstance(files, dict) or (files and set(files) != set(inputs)):
        raise ValueError(f"recording must be a file, or name one for each of {', '.join(inputs)}")
    found = {name: (folder / str(file)).resolve() for name, file in files.items()}
    for name, path in found.items():
        if not path.is_file() or not path.is_relative_to(folder):
            raise ValueError(f"recording: there is no file {files[name]} in the folder")
    return found


def _newest(folder: Path) -> list[Path]:
    """The newest `.avsc` version of each record in a folder."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("*.v*.avsc"), key=lambda p: int(p.name.split(".")[1][1:])):
        newest[path.name.split(".")[0]] = path
    return list(newest.values())


def _schema(path: Path) -> tuple[str, str]:
    try:
        raw = _without_docs(json.loads(path.read_bytes()))
        return raw["name"], json.dumps(raw, separators=(",", ":"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path.name} is not a named Avro schema: {said_by(error)}") from error


def _without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_docs(value) for name, value in schema.items() if name != "doc"}
    if isinstance(schema, list):
        return [_without_docs(item) for item in schema]
    return schema
