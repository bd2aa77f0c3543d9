"""How many processors the program of a pipeline may use, with all its processes.

A quota of a control group gives any share of the machine, also half a processor. Where this user
may not make a group, an affinity gives whole processors. Linux alone has either.

Sources: the kernel's sched-bwc.rst and cgroup-v2.rst, cpuset and sched_setaffinity(2).
"""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.runtime.limits import own_groups, processors

# Short, so that a program that has used its share waits for milliseconds.
PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000  # the kernel's
PREFIX = "tidegauge-"
# Enters the group, then becomes the program, which keeps the number of the process.
ENTER = ("sh", "-c", 'echo $$ > "$0" && exec "$@"')
EMPTY_TIMEOUT_S, POLL_S = 2.0, 0.02
_numbers = itertools.count()


@dataclass
class CoreLimit:
    """The limit of one program. group: the folder of its control group; allowed: the numbers of the
    processors of its affinity; without both it has none."""

    group: Path | None = None
    allowed: frozenset[int] = field(default_factory=frozenset)

    def command(self, words: Sequence[str]) -> list[str]:
        """A command that runs `words` within the limit."""
        return [*words] if self.group is None else [*ENTER, f"{self.group}/cgroup.procs", *words]

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """While this lasts, programs that this thread starts have the affinity."""
        if not self.allowed:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.allowed)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def remove(self) -> None:
        """Remove the group once its processes have ended; one that remains is removed later."""
        until_s = time.monotonic() + EMPTY_TIMEOUT_S
        while self.group is not None and not _removed(self.group) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        self.group = None


def core_limit(cores: float | None, groups: Sequence[tuple[int, Path]] | None = None) -> CoreLimit:
    """The limit to so many processors; None: none. groups: version and folder of the control groups
    in which one may be made, by default those of this process. Raises OSError with the reason, if
    there are fewer or this user can limit a program to whole processors only."""
    if cores is None:
        return CoreLimit()
    own = sorted(processors())
    if cores > len(own):
        raise OSError(f"cores = {cores:g}: there are {len(own)} processors here")
    if (group := _new_group(cores, own_groups("cpu") if groups is None else groups)) is not None:
        return CoreLimit(group=group)
    if cores != int(cores) or not hasattr(os, "sched_setaffinity"):
        raise OSError(
            f"cores = {cores:g} needs a control group with a quota, which this user may not make "
            "here; a whole number needs none"
        )
    # The last ones: the first serves most interrupts.
    return CoreLimit(allowed=frozenset(own[-int(cores) :]))


def _new_group(cores: float, groups: Sequence[tuple[int, Path]]) -> Path | None:
    quota_us = max(LEAST_QUOTA_US, round(cores * PERIOD_US))
    for version, parent in groups:
        for left in parent.glob(f"{PREFIX}*-*"):
            # That of a runner which still runs is empty until its program has entered.
            if not Path(f"/proc/{left.name.split('-')[1]}").exists():
                _removed(left)
        folder = parent / f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
            if version == 1:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        except OSError:
            _removed(folder)
            continue
        return folder
    return None


def _removed(folder: Path) -> bool:
    """Whether a group is removed, which the kernel refuses while it has processes."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()
