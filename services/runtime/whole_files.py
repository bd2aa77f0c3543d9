"""Atomic file replacement: after a kill the file is either the old or the new one."""

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a text file; see write_parts."""
    write_parts(path, [text.encode()])


def write_parts(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Replace a file with the concatenated bytes, readable by its owner only. Creates its folder if
    missing. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
