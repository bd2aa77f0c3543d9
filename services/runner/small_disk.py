"""A small disk for the files of one pipeline, which a workload can fill: a tmpfs, mounted on the
pipeline's folder. Linux alone has it, and mounting needs the right to (CAP_SYS_ADMIN)."""

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mounts")
ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # space, tab, newline and backslash in its paths
SOURCE: Final = "tidegauge"
TIMEOUT_S: Final = 10.0
# Free space below which writes fail: files grow by pages.
FULL_BYTES: Final = 64 * 1024


class SmallDisk:
    """The disk of a folder, which it makes. Raises OSError in one sentence if this user may not
    mount one."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        options = f"size={size_mb}m,mode=0700"
        done = _run("mount", "-t", "tmpfs", "-o", options, SOURCE, str(folder))
        if done is not None:
            raise OSError(
                "a fault of the disk needs a tmpfs for the files of the pipeline, which this user "
                f"may not mount here ({done})"
            )

    @property
    def is_full(self) -> bool:
        """Whether writes to it fail now."""
        with suppress(OSError):
            state = os.statvfs(self._folder)
            return state.f_bavail * state.f_frsize < FULL_BYTES
        return False

    def remove(self) -> None:
        """Unmount it; what still has files open there keeps them until it ends."""
        _run("umount", "--lazy", str(self._folder))


def unmount_below(folder: Path) -> None:
    """Unmount the disks that a killed runner has left below a folder."""
    with suppress(OSError):
        for line in MOUNTS.read_text().splitlines():
            source, place, *_ = line.split(" ")
            place = ESCAPED.sub(lambda code: chr(int(code[1], 8)), place)
            if source == SOURCE and Path(place).is_relative_to(folder):
                _run("umount", "--lazy", place)


def _run(*command: str) -> str | None:
    """Why a command failed; None if it did not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    reason = " ".join(done.stderr.split()) or f"code {done.returncode}"
    return reason if done.returncode else None
