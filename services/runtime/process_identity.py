"""Identifies a process beyond its pid, which is reused."""

from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_TICKS = 19  # index of `starttime` after the command's name


def birth_of(pid: int) -> str:
    """Start time of a process: on Linux the boot id and the clock ticks since boot, which clock
    changes do not affect; elsewhere epoch seconds.

    Raises psutil.NoSuchProcess. Source: proc(5), /proc/PID/stat.
    """
    if not psutil.LINUX:
        return str(psutil.Process(pid).create_time())
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return f"{_boot()}/{fields[START_TICKS]}"


@cache
def _boot() -> str:
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""
