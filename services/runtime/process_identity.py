"""Identifies a process beyond its pid, which is reused, and its parent."""

from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PARENT, START_TICKS = 1, 19  # indexes of `ppid` and `starttime` after the command's name


def birth_of(pid: int) -> str:
    """Start time of a process: on Linux the boot id and the clock ticks since boot, which clock
    changes do not affect; elsewhere epoch seconds.

    Raises psutil.NoSuchProcess. Source: proc(5), /proc/PID/stat.
    """
    if not psutil.LINUX:
        return str(psutil.Process(pid).create_time())
    return f"{_boot()}/{_status(pid)[START_TICKS].decode()}"


def parent_of(pid: int) -> int:
    """Process id of the parent. `psutil.Process.ppid` reads two more files per process, to check
    that the pid was not reused.

    Raises psutil.NoSuchProcess.
    """
    if not psutil.LINUX:
        return int(psutil.Process(pid).ppid())
    return int(_status(pid)[PARENT])


def _status(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat after the command's name."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error


@cache
def _boot() -> str:
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""
