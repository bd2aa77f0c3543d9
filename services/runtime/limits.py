"""The processor cores and the memory that this process may use.

A container, a systemd unit or a CI job has a part of its machine: the quota and the memory limit of
its control groups (version 1 and 2), of which the tightest of all enclosing ones counts, and the
processors that its affinity (taskset, cpusets) leaves. Elsewhere than on Linux both are the
machine's.

Sources: cgroups(7), /proc/PID/mountinfo in proc(5), and the kernel's cgroup-v2.rst and
cgroup-v1/memory.rst.
"""

import math
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

PROC_SELF = Path("/proc/self")
MICROSECONDS, NANOSECONDS = 1e-6, 1e-9
ESCAPE = re.compile(r"\\([0-7]{3})")  # of a space and the like in mountinfo


@dataclass(frozen=True)
class ProcessLimits:
    """What this process may use.

    cores: whole if it is a whole number, `1.5` for a quota of one and a half. memory_bytes: at most
    the machine's; free_bytes: what new processes could use of it now, which includes file cache.
    limited_by: why cores are fewer than the machine's: `quota`, `affinity`, or empty. group: the
    control group with that quota.
    """

    cores: float
    memory_bytes: int
    free_bytes: int
    limited_by: str = ""
    group: Path | None = None

    @property
    def whole_cores(self) -> int:
        """The cores that threads are counted by: at least 1, rounded up."""
        return math.ceil(self.cores)


@dataclass(frozen=True)
class _Group:
    """The folders of a control group and of those that enclose it, innermost first."""

    version: int
    folders: tuple[Path, ...]


def machine() -> ProcessLimits:
    """The whole machine, whatever this process may use of it."""
    memory = psutil.virtual_memory()
    return ProcessLimits(os.cpu_count() or 1, memory.total, memory.available)


def limits(
    proc: Path = PROC_SELF,
    whole: ProcessLimits | None = None,
    affinity: Collection[int] | None = None,
) -> ProcessLimits:
    """What a process may use. proc: its folder in /proc; whole: its machine; affinity: the numbers
    of its processors. By default those of this process."""
    whole = machine() if whole is None else whole
    cores, why, group = whole.cores, "", None
    if (allowed := len(processors() if affinity is None else affinity)) < cores:
        cores, why = allowed, "affinity"
    for folder, quota in _quotas(proc):
        if quota < cores:
            cores, why, group = quota, "quota", folder
    memory, free = whole.memory_bytes, whole.free_bytes
    for limit, used in _memory(proc):
        memory, free = min(memory, limit), min(free, max(0, limit - used))
    return ProcessLimits(int(cores) if cores == int(cores) else cores, memory, free, why, group)


def own_groups(controller: str) -> list[tuple[int, Path]]:
    """Version and folder of this process's control groups that may have a controller."""
    return [(group.version, group.folders[0]) for group in _groups(PROC_SELF, controller)]


def processors() -> set[int]:
    """The processors on which this process may run, by number."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def used_s(group: Path) -> float | None:
    """Processor time of a control group since its creation, in seconds; None if it is not counted,
    as with version 1 where the controllers `cpu` and `cpuacct` are apart."""
    with suppress(OSError, ValueError, KeyError):
        return _fields(group / "cpu.stat")["usage_usec"] * MICROSECONDS
    with suppress(OSError, ValueError):
        return int((group / "cpuacct.usage").read_text()) * NANOSECONDS
    return None


def _quotas(proc: Path) -> Iterator[tuple[Path, float]]:
    """Cores that each enclosing group may use, of those with a quota."""
    for group in _groups(proc, "cpu"):
        for folder in group.folders:
            with suppress(OSError, ValueError):
                if group.version == 1:
                    quota = int((folder / "cpu.cfs_quota_us").read_text())
                    period = int((folder / "cpu.cfs_period_us").read_text())
                else:
                    # `max 100000` has none: a ValueError.
                    quota, period = map(int, (folder / "cpu.max").read_text().split())
                if quota > 0 and period > 0:
                    yield folder, quota / period


def _memory(proc: Path) -> Iterator[tuple[int, int]]:
    """Limit of each enclosing group, and what is used of it without inactive file cache."""
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }
    for group in _groups(proc, "memory"):
        limit, used, cache = names[group.version]
        for folder in group.folders:
            with suppress(OSError, ValueError):
                result = int((folder / limit).read_text())  # `max`: a ValueError
                taken = int((folder / used).read_text())
                cached = _fields(folder / "memory.stat").get(cache, 0)
                yield result, max(0, taken - cached)


def _fields(path: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value in pairs}


@cache
def _groups(proc: Path, controller: str) -> tuple[_Group, ...]:
    """The group of this process in the hierarchy of version 1 with a controller, if it is mounted,
    and in that of version 2. Only looked for once, because the collector asks every second."""
    try:
        lines = (proc / "cgroup").read_text().splitlines()
        mounts = list(_mounts((proc / "mountinfo").read_text()))
    except OSError:
        return ()
    result = []
    own = {tuple(line.split(":", 2)[1].split(",")): line.split(":", 2)[2] for line in lines}
    for version, options, root, place in mounts:
        for controllers, path in own.items():
            is_v1 = version == 1 and controller in controllers and controller in options
            if is_v1 or (version == 2 and controllers == ("",)):
                result.append(_Group(version, tuple(_enclosing(Path(path), root, place))))
    return tuple(result)


def _mounts(text: str) -> Iterator[tuple[int, list[str], Path, Path]]:
    """Version, options, root and mount point of every mounted hierarchy of control groups."""
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        kind, _source, options = back.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, place = (Path(_unescaped(word)) for word in front.split(" ")[3:5])
            yield (1 if kind == "cgroup" else 2), options.split(","), root, place


def _enclosing(path: Path, root: Path, place: Path) -> Iterator[Path]:
    """Folders of a group and those around it. In a container the mount point may be the container's
    own group, whatever the path of the process says."""
    inside = path.relative_to(root) if path.is_relative_to(root) else Path()
    if ".." in inside.parts:
        inside = Path()
    folder = place / inside
    yield folder
    while folder != place:
        folder = folder.parent
        yield folder


def _unescaped(word: str) -> str:
    return ESCAPE.sub(lambda each: chr(int(each[1], 8)), word)
