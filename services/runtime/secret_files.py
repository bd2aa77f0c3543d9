"""Secrets in files: generated once, long enough, and private.

    password = kept_secret(data / "secrets" / "clickhouse-admin")

Files are created atomically. A file to read must be a regular file (no symbolic link) with at least
16 printable characters, and private:

- owned by this user and closed to all others, or
- owned by root and closed to all but its group, which is how an administrator shares one, or
- on a read-only mount, which is how containers get theirs. Compose mounts a file with the owner and
  mode that it has on the host, Kubernetes one owned by root that the pod's group can read. Only
  whoever set up the container can put a file there, so its owner and mode are accepted.
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

MIN_CHARACTERS = 16
MAX_BYTES = 4096
RANDOM_BYTES = 24


class SecretFileError(Exception):
    """A secret cannot be used or created; the text is one sentence that names the file."""


def kept_secret(path: Path) -> str:
    """The secret in a file, created with its folder if missing. Raises SecretFileError.

    Concurrent processes get the same secret.
    """
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            _make(path)
            return _read(path)
    except OSError as error:
        raise SecretFileError(f"the secret {path} cannot be used: {error.strerror}") from error


def existing_secret(path: Path) -> str:
    """The secret in a file that another process creates. Raises SecretFileError, also if it is
    missing."""
    try:
        return _read(path)
    except OSError as error:
        raise SecretFileError(f"the secret {path} cannot be used: {error.strerror}") from error


def given_secret(path: Path) -> str:
    """The secret in a file named in the settings; the user chooses its owner and mode.

    Raises SecretFileError, also if the file is empty.
    """
    try:
        with path.open("rb") as file:
            result = _text(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise SecretFileError(f"the secret {path} cannot be used: {error.strerror}") from error
    if not result:
        raise SecretFileError(f"the secret {path} {_mistake(result)}")
    return result


def _read(path: Path) -> str:
    # Without O_NONBLOCK, opening a named pipe blocks until its other end is opened.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if path.is_symlink():
        raise SecretFileError(f"the secret {path} is a symbolic link, not a file")
    descriptor = os.open(path, flags)
    try:
        _check_private(path, descriptor)
        result = _text(os.read(descriptor, MAX_BYTES + 1))
    finally:
        os.close(descriptor)
    if result is None or len(result) < MIN_CHARACTERS:
        raise SecretFileError(
            f"the secret {path} {_mistake(result)}; remove it, and a new one is created"
        )
    return result


def _check_private(path: Path, descriptor: int) -> None:
    result = os.fstat(descriptor)
    if not stat.S_ISREG(result.st_mode):
        raise SecretFileError(f"the secret {path} is not a regular file")
    read_only = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    objection = openness(result.st_uid, stat.S_IMODE(result.st_mode), os.geteuid(), read_only)
    if objection is not None:
        raise SecretFileError(f"the secret {path} {objection}; remove it, and a new one is created")


def openness(owner: int, mode: int, us: int, read_only_mount: bool) -> str | None:
    """Why others can read or change a secret; None if it is private by the rule above."""
    if read_only_mount:
        return None
    if owner not in (us, 0):
        return f"belongs to another user (uid {owner})"
    allowed = 0o700 if owner == us else 0o740
    return f"is accessible to other users (mode {mode:04o})" if mode & ~allowed else None


def _text(data: bytes) -> str | None:
    """The secret as one line without its newline; None if the bytes are not a valid secret."""
    result = data.decode(errors="replace").strip()
    is_line = len(data) <= MAX_BYTES and result.isprintable() and "\ufffd" not in result
    return result if is_line else None


def _mistake(secret: str | None) -> str:
    if secret is None:
        return "is not a single line of text"
    return f"has fewer than {MIN_CHARACTERS} characters" if secret else "is empty"


def _make(path: Path) -> None:
    """Create a secret atomically, unless another process is faster. The data folder above its own
    may be missing, too; `mkdir` applies its mode to the last folder only."""
    for missing in (path.parent.parent, path.parent):
        missing.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(RANDOM_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
