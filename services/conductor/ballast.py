"""Keeps a disk full for some seconds: `python -m services.conductor.ballast FOLDER SECONDS`.

The ballast is a file without a name, so its space is free again when this process ends, whatever
the cause. Space that others free meanwhile is filled again.
"""

import errno
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

BLOCK: Final = bytes(1024 * 1024)
LEAST: Final = bytes(4096)  # a page
FILL_EVERY_S: Final = 0.02


def main() -> int:
    """Fill the disk of the folder named first, and keep it full for so many seconds."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    if not folder.is_mount():
        sys.exit(f"{folder} is not a disk of its own, so it is not filled")
    with TemporaryFile(dir=folder, buffering=0) as file:
        fill(file.fileno())
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            fill(file.fileno())
            time.sleep(min(FILL_EVERY_S, until_s - now_s))
    return 0


def fill(file: int) -> None:
    """Write to an open file until there is no space left. Raises OSError for any other reason."""
    for block in (BLOCK, LEAST):
        try:
            while True:
                os.write(file, block)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


if __name__ == "__main__":
    sys.exit(main())
