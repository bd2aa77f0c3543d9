"""Class data sharing archives of HotSpot: a JVM maps the classes that it loads at start from one
instead of finding, parsing and verifying them.

    <jars>/archives/NAME-KEY.jsa            the archive
    <jars>/archives/NAME-KEY.pid17.classes  class list of JVM 17, written while there is no archive
    <jars>/archives/NAME-KEY.json           how the archive is made from the lists
    <jars>/archives/NAME-KEY.failed         why it could not be made; it is not tried again

The key is a SHA-256 of the Java version, the layout options and the SHA-256 of the jars. An archive
is code, so it is used only if nobody but its owner and root can change it. A JVM checks it and
starts without it if it is damaged or belongs to other jars (`-Xshare:auto`).
deploy/local/archiving.py makes the archives.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from services.runtime.files import write_whole

FOLDER = "archives"
OTHERS_WRITE = 0o022
# These options set the layout of heap objects; a JVM maps only archives of its own layout.
MATTERS = re.compile(r"-XX:([+-]Use\w*Compressed\w+|[+-]UseCompact\w+|ObjectAlignmentInBytes=\d+)")
USE = (
    "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+VerifySharedSpaces",  # verify checksums before use
    "-Xlog:cds*=off",  # no warnings about unusable parts
)
PID = re.compile(r"\.pid(\d+)\.classes$")


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one kind of JVM, existing or not. java_home: of the runtime that makes and
    uses it; matters: layout options of that JVM."""

    folder: Path
    name: str
    java_home: Path
    matters: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Path of the archive."""
        return self._file("jsa")

    @property
    def recipe(self) -> Path:
        """Path of the file that says how to make it."""
        return self._file("json")

    @property
    def failed(self) -> Path:
        """Path of the file with the reason why it could not be made."""
        return self._file("failed")

    def lists(self) -> Iterator[Path]:
        """Class lists that JVMs have written or are writing."""
        return self.folder.glob(f"{self.name}.pid*.classes")

    def options(self) -> tuple[str, ...]:
        """JVM options that use the archive or, without one, write a class list; none if neither is
        possible."""
        if is_closed(self.folder) and is_closed(self.path):
            return (f"-XX:SharedArchiveFile={self.path}", *USE)
        if not self._may_record():
            return ()
        for past in self.lists():
            if not _is_written(past):
                past.unlink(missing_ok=True)
        return (f"-XX:DumpLoadedClassList={self._file('%p.classes')}",)

    def record(self, class_path: str) -> None:
        """Save the class path of the JVM that is to write its class list, if allowed."""
        if self._may_record():
            content = {"java_home": str(self.java_home), "options": list(self.matters)}
            with suppress(OSError):  # without it, no archive is made
                write_whole(self.recipe, json.dumps(content | {"class_path": class_path}))

    def _may_record(self) -> bool:
        if self.path.exists() or self.failed.exists():
            return False
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
        return is_closed(self.folder) and os.access(self.folder, os.W_OK)

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self.name}.{ending}"


def class_archive(
    jars: Path, use: str, java_home: Path, *, options: Iterable[str] = (), of: Iterable[Path]
) -> ClassArchive | None:
    """The archive for a use such as `broker`. of: files with the SHA-256 of all its jars. None if
    one of them is missing or the Java runtime does not report its version."""
    matters = tuple(option for option in options if MATTERS.fullmatch(option))
    digest = hashlib.sha256("\0".join(matters).encode())
    try:
        for path in (java_home / "release", *of):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError:
        return None
    name = f"{use}-{digest.hexdigest()[:16]}"
    return ClassArchive(jars / FOLDER, name, java_home, matters)


def is_closed(path: Path) -> bool:
    """Whether only this user and root can write a file or folder."""
    try:
        result = path.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISREG(result.st_mode) or stat.S_ISDIR(result.st_mode)
    return is_plain and result.st_uid in (0, os.geteuid()) and not result.st_mode & OTHERS_WRITE


def _is_written(path: Path) -> bool:
    """Whether the process named in a class list's file name is running."""
    match = PID.search(path.name)
    return match is not None and psutil.pid_exists(int(match[1]))
