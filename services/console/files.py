"""Output files named on the command line: checked before the work, written after it."""

import os
from pathlib import Path

from services.runtime.definitions import DefinitionError


def check_file(option: str, path: Path | None) -> None:
    """Raises DefinitionError if a file named by an option cannot be written; None is accepted."""
    if path is None:
        return
    folder = path.absolute().parent
    if os.path.isdir(path):  # unlike pathlib's, false without permission
        raise DefinitionError(f"{option} {path}: that is a folder.")
    if not os.path.isdir(folder):
        raise DefinitionError(f"{option} {path}: there is no folder {folder}.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise DefinitionError(f"{option} {path}: it cannot be written.")


def write_file(option: str, path: Path, data: bytes) -> None:
    """Write the file; its access rights stay as they are. Raises DefinitionError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise DefinitionError(f"{option} {path}: {error.strerror}.") from error
