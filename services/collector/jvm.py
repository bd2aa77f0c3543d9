"""Heap, collections and compilation of a JVM, from its performance counters.

HotSpot writes its counters into a memory-mapped file, `hsperfdata_USER/PID` in its temporary
folder, as `jstat` reads it (`-XX:+UsePerfData`, the default). Reading them starts no process and
does not disturb the JVM: counters are located once, then a sample reads a few 8-byte numbers.

Any user can create such files, so only those of the JVM's own user count, as for `jstat`.

Layout (jdk.internal.perf, "prologue version 2"): magic CA FE C0 C0, byte order, version, …, at 24
the offset of the first entry and at 28 how many there are; an entry is its length, the offset of
its name, vector length, type ('J': a 64-bit integer), flags, unit, variability, offset of its data.
"""

import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"\xca\xfe\xc0\xc0"
MAX_FILE_BYTES = 1024 * 1024
_ENTRY = struct.Struct("iiibbbbi")
_SPACES = tuple(f"sun.gc.generation.{g}.space.{s}" for g, s in ((0, 0), (0, 1), (0, 2), (1, 0)))
_COLLECTORS = tuple(f"sun.gc.collector.{n}" for n in range(3))
WORDS_BYTES = 64  # by which the sizes that G1 reports for the same heap differ
FREQUENCY = "sun.os.hrt.frequency"
COMPILING = "java.ci.totalTime"  # increased by each compiler thread after a method


@dataclass(frozen=True)
class JvmSample:
    """Since the JVM began: gc_seconds, gc_count of all collectors; jit_seconds: duration of
    all compilations, with waits for a core. heap_used_bytes: most collectors update it only when
    they collect; None before the first update. heap_max_bytes: to which it may grow; None if not
    told."""

    heap_used_bytes: int | None
    heap_capacity_bytes: int
    heap_max_bytes: int | None
    gc_seconds: float
    gc_count: int
    jit_seconds: float


class JvmCounters:
    """Reads the counters of one process if it is a JVM that has them."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._path = next(_files(pid, proc), None)
        self._places: Mapping[str, int] = {}

    @property
    def is_known(self) -> bool:
        """Whether the counter file was found."""
        return self._path is not None

    def sample(self) -> JvmSample | None:
        """The current counters; None if there are none or they are incomplete."""
        if self._path is None:
            return None
        if not (data := _own_file(self._path)):
            return None
        if FREQUENCY not in self._places:
            self._places = places(data)
        return read(data, self._places)


def places(data: bytes) -> dict[str, int]:
    """Offset of the value of every 64-bit counter, by name; empty for other files."""
    if len(data) < 32 or data[:4] != MAGIC or data[4] != 1 or data[5] != 2 or not data[7]:
        return {}
    at, count = struct.unpack_from("<ii", data, 24)
    result = {}
    for _number in range(count):
        if not 0 < at <= len(data) - _ENTRY.size:
            break
        length, name_at, vector, kind, _flags, _unit, _vary, value_at = _ENTRY.unpack_from(data, at)
        end = data.find(b"\0", at + name_at)
        if kind == ord("J") and vector == 0 and at + value_at + 8 <= len(data):
            result[data[at + name_at : end].decode(errors="replace")] = at + value_at
        if length <= 0:
            break
        at += length
    return result


def read(data: bytes, at: Mapping[str, int]) -> JvmSample | None:
    """The sample in a counter file, given the offsets."""

    def value(name: str) -> int:
        place = at.get(name)
        return 0 if place is None else int(struct.unpack_from("<q", data, place)[0])

    if not value(FREQUENCY):
        return None
    return JvmSample(
        heap_used_bytes=sum(value(f"{space}.used") for space in _SPACES) or None,
        heap_capacity_bytes=sum(value(f"{space}.capacity") for space in _SPACES),
        heap_max_bytes=_heap_max_bytes(value),
        gc_seconds=sum(value(f"{c}.time") for c in _COLLECTORS) / value(FREQUENCY),
        gc_count=sum(value(f"{c}.invocations") for c in _COLLECTORS),
        jit_seconds=value(COMPILING) / value(FREQUENCY),
    )


def _heap_max_bytes(value: Callable[[str], int]) -> int | None:
    """The generations together. With collectors that divide the heap into regions (G1, Z), or that
    have one generation only, each generation is the whole heap, and so is its first space."""
    young, old = (value(f"sun.gc.generation.{g}.maxCapacity") for g in (0, 1))
    is_whole = value(f"{_SPACES[0]}.maxCapacity") >= young - WORDS_BYTES
    return (max(young, old) if is_whole else young + old) or None


def _own_file(path: Path) -> bytes:
    """A plain file of the owner of its folder; empty if it is none. A link is not followed, and a
    pipe is not waited for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        owner = path.parent.lstat().st_uid
        with open(os.open(path, flags), "rb") as file:
            result = os.fstat(file.fileno())
            is_own = stat.S_ISREG(result.st_mode) and result.st_uid == owner
            return file.read(MAX_FILE_BYTES) if is_own else b""
    except OSError:
        return b""


def _files(pid: int, proc: Path) -> Iterator[Path]:
    """Candidate paths in folders of the user of a process, in the process's own view of its
    temporary folder, so that JVMs in containers are found, where the pid differs."""
    try:
        status = (proc / str(pid) / "status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        number, user = fields["NSpid"].split()[-1], int(fields["Uid"].split()[1])
        folder = proc / str(pid) / "root" / "tmp"
        # A glob would visit every file in the folder.
        names = sorted(name for name in os.listdir(folder) if name.startswith("hsperfdata_"))
    except (OSError, LookupError, ValueError):
        return
    for name in names:
        with suppress(OSError):
            result = (folder / name).lstat()
            is_own = stat.S_ISDIR(result.st_mode) and result.st_uid == user
            if is_own and (path := folder / name / number).exists():
                yield path
