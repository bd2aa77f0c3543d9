"""What ./tidegauge needs before its packages are installed: an environment without the variables
whose options every JVM adds to its own, and whether a virtual environment still has its Python.
Standard library only."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

# The JVM's, the same in an older form, and the `java` command's; then those of OpenJ9.
JVM_OPTIONS = frozenset(
    {
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "OPENJ9_JAVA_OPTIONS",
        "IBM_JAVA_OPTIONS",
    }
)


def without_jvm_options(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without them."""
    return {name: value for name, value in environ.items() if name not in JVM_OPTIONS}


ASK_TIMEOUT_S = 20
ASKED = "import sys; print('python%d.%d' % sys.version_info[:2])"


def has_python(venv: Path) -> bool:
    """Whether its interpreter starts and is of the version for which its packages are installed.

    An environment links to a Python elsewhere. An upgrade of that Python may remove it, or put
    another version in its place, which does not see the packages.
    """
    command = [str(venv / "bin" / "python"), "-I", "-S", "-c", ASKED]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = done.stdout.strip()
    return done.returncode == 0 and (venv / "lib" / version / "site-packages").is_dir()
