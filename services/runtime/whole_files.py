"""Small files that are replaced in one step: a kill at any time leaves the old or the new one."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a file; its folder is made where it is missing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
