"""Archives of classes (HotSpot's class data sharing): a JVM that maps one has the classes of its
start without finding, parsing and verifying them again.

    <jars>/archives/NAME-KEY.jsa            the archive
    <jars>/archives/NAME-KEY.pid17.classes  what the JVM 17 has loaded, while there is no archive
    <jars>/archives/NAME-KEY.json           how an archive is made of it
    <jars>/archives/NAME-KEY.failed         why none could be made; it is not tried again

The key is a SHA-256 of the Java version, the options that matter and the SHA-256 of the jars. An
archive is code, so only one that nobody but its owner and root can change is used. A JVM checks it
and goes on without one that is damaged or of other jars (`-Xshare:auto`). deploy/local/archiving.py
makes what is read here.
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

from services.runtime.whole_files import write_whole

FOLDER = "archives"
OTHERS_WRITE = 0o022
# Objects of the heap are laid out by these; a JVM takes an archive of the same layout only.
MATTERS = re.compile(r"-XX:([+-]Use\w*Compressed\w+|[+-]UseCompact\w+|ObjectAlignmentInBytes=\d+)")
USE = (
    "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+VerifySharedSpaces",  # its checksums are compared before it is used
    "-Xlog:cds*=off",  # what it is not used for is no warning
)
PID = re.compile(r"\.pid(\d+)\.classes$")


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one kind of JVM, whether it is there or not. java_home: of the runtime that
    makes and uses it; matters: options of the JVM that it is made with too."""

    folder: Path
    name: str
    java_home: Path
    matters: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The archive."""
        return self._file("jsa")

    @property
    def recipe(self) -> Path:
        """How it is made."""
        return self._file("json")

    @property
    def failed(self) -> Path:
        """Why it could not be made."""
        return self._file("failed")

    def lists(self) -> Iterator[Path]:
        """What JVMs have loaded or load now."""
        return self.folder.glob(f"{self.name}.pid*.classes")

    def options(self) -> tuple[str, ...]:
        """Options of a JVM: that use the archive, or that write down what an archive is made of;
        none where neither is possible."""
        if is_closed(self.folder) and is_closed(self.path):
            return (f"-XX:SharedArchiveFile={self.path}", *USE)
        if not self._may_record():
            return ()
        for past in self.lists():
            if not _is_written(past):
                past.unlink(missing_ok=True)
        return (f"-XX:DumpLoadedClassList={self._file('%p.classes')}",)

    def record(self, class_path: str) -> None:
        """Note the class path of the JVM that is to write down its classes, where it may."""
        if self._may_record():
            told = {"java_home": str(self.java_home), "options": list(self.matters)}
            with suppress(OSError):  # without it no archive is made
                write_whole(self.recipe, json.dumps(told | {"class_path": class_path}))

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
    """The archive for a use, such as `broker`. of: files with the SHA-256 of all its jars. None
    where one of them is not there, or the Java runtime does not say its version."""
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
    """Whether nobody but this user or root can have written a file or folder."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return is_plain and found.st_uid in (0, os.geteuid()) and not found.st_mode & OTHERS_WRITE


def _is_written(path: Path) -> bool:
    """Whether the process lives that a list is named after."""
    found = PID.search(path.name)
    return found is not None and psutil.pid_exists(int(found[1]))
