"""What tells a process from all others that have or had its pid."""

from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_TICKS = 19  # place of `starttime` after the command's name


def birth_of(pid: int) -> str:
    """When a process began: the boot and the clock ticks since then on Linux, whatever is done to
    the clock; elsewhere epoch seconds.

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
