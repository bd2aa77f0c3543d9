"""SHA-256 of every jar: `ivy.lock` is to `ivy.xml` what requirements.lock is to packages.

The format is that of sha256sum, so the same check works without Tidegauge:

    cd .jars && sha256sum --check ../deploy/local/ivy.lock
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK_FILE = HERE / "ivy.lock"
STAMP = "installed.lock"
HEAD = """\
# SHA-256 of the jars of {ivy_file}. Written by the following command:
#    .venv/bin/python -m deploy.local.jars lock
"""


class JarsError(Exception):
    """The jars differ from the lock; the text is one sentence."""


def read_jars_lock(text: str) -> dict[Path, str]:
    """The SHA-256 by path, such as `broker/kafka_2.13-4.3.1.jar`."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {Path(path): digest for digest, _, path in (line.partition("  ") for line in lines)}


def jars_lock_text(jars: Path, paths: Iterable[Path], ivy_file: str) -> str:
    """A lock of files below `jars`; ivy_file: name of the file that lists them."""
    lines = (f"{_sha256(jars / path)}  {path.as_posix()}\n" for path in sorted(paths))
    return HEAD.format(ivy_file=ivy_file) + "".join(lines)


def verify_jars(jars: Path, lock: Mapping[Path, str]) -> None:
    """Raise JarsError unless the folders of the lock contain exactly its jars, byte for byte."""
    for path, digest in lock.items():
        if not (jars / path).is_file():
            raise JarsError(f"{jars / path} is missing")
        if _sha256(jars / path) != digest:
            raise JarsError(
                f"{jars / path} is truncated or modified: its SHA-256 is not the pinned one"
            )
    for folder in sorted({path.parent for path in lock}):
        for found in sorted((jars / folder).iterdir()):
            if found.relative_to(jars) not in lock:
                raise JarsError(f"{found} is not in the lock of the jars")


def jars_lock() -> dict[Path, str]:
    """The lock of this repository's jars."""
    return read_jars_lock(LOCK_FILE.read_text())


def mend(jars: Path) -> str:
    """How to repair jars that differ from the lock."""
    return f"remove {jars / STAMP} and start ./tidegauge again, which downloads the jars again"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
