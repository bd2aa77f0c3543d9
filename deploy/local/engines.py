"""Install engines that are installed at first use, each into a folder of its own.

    python -m deploy.local.engines lock FOLDER   write the locks of an engine's folder

Everything is verified against the locks in the engine's folder: packages against
`requirements.lock`, jars against `jars.lock`, and those of other versions likewise. Java is
compiled with the compiler among the jars, so a Java runtime is enough. An interrupted installation
is resumed: parts without a stamp are rebuilt.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from deploy.local.install import (
    BUILD_LOCK,
    InstallError,
    check_addresses,
    close_to_writers,
    locked,
    reason,
    run,
    tool_environment,
)
from deploy.local.jars import FetchError, fetch, write_lock
from deploy.local.java import JavaMissingError, find_java
from services.definitions.engines import (
    CLASSES_STAMP,
    COMPILER,
    STAMP,
    Engine,
    Installed,
    installed,
)
from services.runtime.settings import ROOT, ServiceSettings

MEGABYTE = 1_000_000
COMPILER_OPTIONS = ("-17", "-nowarn", "-proc:none", "-encoding", "UTF-8")
REQUIREMENTS = "requirements.in"
HEAD = "# Written by: .venv/bin/python -m deploy.local.engines lock FOLDER\n"


def install_engines(
    engines: Iterable[Engine], settings: ServiceSettings, say: Callable[[str], None]
) -> None:
    """Bring each engine's installation up to date; idempotent. Raises InstallError with one
    sentence."""
    for engine in {(each.spec.name, each.version): each for each in engines}.values():
        name = " ".join(filter(None, (engine.spec.name, engine.version)))
        try:
            _install(installed(engine, settings), settings, say)
        except (FetchError, JavaMissingError, OSError, InstallError) as error:
            raise InstallError(f"the engine {name} is not installed: {_why(error)}") from error


def _why(error: Exception) -> str:
    """An error message without its errno."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _install(place: Installed, settings: ServiceSettings, say: Callable[[str], None]) -> None:
    if not place.lacking():
        return
    _check_python(place.engine.spec.install.python_below)
    check_addresses(os.environ)
    place.folder.mkdir(parents=True, exist_ok=True)
    with closing(locked(place.folder / "install.lock")):
        lacking = place.lacking()
        if set(lacking) - {"classes"}:
            size = place.engine.spec.install.size_mb
            say(f"installing the engine {place.folder.name} (first use; about {size} MB)")
            _check_room(place.folder, size)
        if "packages" in lacking:
            _install_packages(place)
        if "jars" in lacking:
            assert place.jars_lock is not None
            fetch(place.jars, place.jars_lock)
        if place.java_sources and place.lacking():
            _compile(place, settings)
        close_to_writers(place.folder)


def _check_python(below: str) -> None:
    """Raise InstallError if its packages have no wheels for this Python."""
    if below and sys.version_info >= tuple(map(int, below.split("."))):
        raise InstallError(
            f"it needs a Python older than {below}, and this is {sys.version.split()[0]};"
            " remove .venv and set TIDEGAUGE_PYTHON to an older one"
        )


def _check_room(folder: Path, size_mb: int) -> None:
    free_mb = shutil.disk_usage(folder).free // MEGABYTE
    if free_mb < 2 * size_mb:
        raise InstallError(f"only {free_mb} MB are free in {folder}; it needs {2 * size_mb} MB")


def _install_packages(place: Installed) -> None:
    lock = place.python_lock
    assert lock is not None
    shutil.rmtree(place.venv, ignore_errors=True)
    uv = find_uv()
    python = str(place.venv / "bin" / "python")
    if uv is not None:
        make = [uv, "venv", "--python", sys.executable, str(place.venv)]
        fill = [uv, "pip", "install", "--python", python]
    else:
        make = [sys.executable, "-m", "venv", str(place.venv)]
        fill = [python, "-m", "pip", "install", "--quiet", "--use-pep517"]
    fill += ["--no-deps", "--require-hashes"]
    run("creating its environment", make, ROOT)
    # Isolated builds would fetch build tools of any version, without hashes.
    run("installing its build tools", [*fill, "-r", BUILD_LOCK], ROOT)
    run("installing its packages", [*fill, "--no-build-isolation", "-r", str(lock)], ROOT)
    _stamp(place.venv / STAMP, lock.read_text())


def find_uv() -> str | None:
    """The uv of this environment, or of the PATH."""
    own = Path(sys.executable).with_name("uv")
    return str(own) if own.is_file() else shutil.which("uv")


def _compile(place: Installed, settings: ServiceSettings) -> None:
    """Compile all Java into a new folder, which then replaces the existing one."""
    compilers = sorted((place.jars / COMPILER).glob("*.jar"))
    if not compilers:
        raise InstallError(f"its {place.engine.spec.install.jars} names no {COMPILER}")
    new = place.folder / ".classes"
    shutil.rmtree(new, ignore_errors=True)
    java = find_java(settings.jars)
    class_path = place.environment()["CLASSPATH"]
    jars = os.pathsep.join(_expanded(class_path.split(os.pathsep)))
    command = [str(java.executable), "-jar", str(compilers[0]), *COMPILER_OPTIONS, "-cp", jars]
    done = subprocess.run(
        [*command, "-d", str(new), *map(str, place.java_sources)],
        env=tool_environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InstallError(
            f"its Java does not compile: {reason(done.stdout + done.stderr, done.returncode)}"
        )
    _stamp(new / CLASSES_STAMP, place.sources_digest)
    shutil.rmtree(place.classes, ignore_errors=True)
    new.rename(place.classes)


def _expanded(class_path: Iterable[str]) -> list[str]:
    """A class path with jars in place of `folder/*`, which only Java expands."""
    result: list[str] = []
    for part in class_path:
        path = Path(part)
        result += sorted(map(str, path.parent.glob("*.jar"))) if path.name == "*" else [part]
    return result


def _stamp(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def write_locks(folder: Path) -> None:
    """Write the locks of an engine's folder: `requirements.lock` from `requirements.in`, and the
    SHA-256 of the jars that the others name. Raises InstallError and FetchError."""
    if (folder / REQUIREMENTS).is_file():
        lock = folder / "requirements.lock"
        with tempfile.TemporaryDirectory() as name:
            new = Path(name) / lock.name
            command = [find_uv() or "uv", "pip", "compile", "--quiet", "--python-version", "3.11"]
            command += ["--universal", "--generate-hashes", "--no-emit-index-url", "--no-header"]
            run("locking", [*command, "-o", str(new), str(folder / REQUIREMENTS)], folder)
            lock.write_text(HEAD + new.read_text())
    for lock in sorted(folder.glob("jars*.lock")):
        write_lock(lock)


def main(arguments: list[str]) -> int:
    """Write the locks of an engine's folder."""
    if len(arguments) != 2 or arguments[0] != "lock":
        print(__doc__, file=sys.stderr)
        return 2
    try:
        write_locks(Path(arguments[1]).resolve())
    except (InstallError, FetchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
