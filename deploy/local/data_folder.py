"""The data folder is private: only its owner can list, read or change its content."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deploy.local.failures import StackError

# All files of a stack are closed to others.
UMASK = 0o077
FOLDER_MODE = 0o700
LOCK_NAME = "stack.lock"
# Any of these identifies a data folder, also a restored one.
OWN_NAMES = frozenset({LOCK_NAME, "kafka", "clickhouse"})


def check_owner(data: Path) -> None:
    """Raise StackError if the folder, or a link in its place, belongs to another user.

    A missing folder is accepted.
    """
    with suppress(FileNotFoundError):
        for found in (data.lstat(), data.stat()):
            if found.st_uid != os.geteuid():
                raise StackError(
                    f"the data folder {data} belongs to another user (uid {found.st_uid});"
                    " choose another one with --data",
                )


def make_private(data: Path, on_progress: Callable[[str], None]) -> None:
    """Create the folder if missing, and close it to others. Raises StackError, OSError.

    Only empty folders and existing data folders are closed: a shared folder given by mistake is
    left unchanged and refused.
    """
    check_owner(data)
    data.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    check_owner(data)
    mode = stat.S_IMODE(data.stat().st_mode)
    if not mode & UMASK:
        return
    names = {path.name for path in data.iterdir()}
    if names and not names & OWN_NAMES:
        raise StackError(
            f"the data folder {data} is accessible to other users (mode {mode:04o}) and has other"
            " files; choose another one with --data",
        )
    data.chmod(FOLDER_MODE)
    on_progress(f"removed access of other users to {data}")
