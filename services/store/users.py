"""Users of the HTTP interface and their roles.

There are three users. `reader` can only read the projection. `admin` may also change tables.
`default`, the user of a client that gives no name, has no password and is the reader: it is let in
with any, as in ClickHouse. It exists while `anonymous_reads` is on, by default on a loopback
address only. The engine has no accounts of its own, so `services/store/policy/query_policy.py`
enforces these roles.
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from services.runtime.secret_files import kept_secret
from services.store.engine import EngineError

ANONYMOUS = "default"
READER_FILE = "clickhouse-reader"
ADMIN_FILE = "clickhouse-admin"


class Role(Enum):
    """What a request may do."""

    READER = "reader"
    ADMIN = "admin"


@dataclass(frozen=True)
class Users:
    """The passwords, which are never shown. anonymous: whether `default` may read without one."""

    reader: str = field(repr=False)
    admin: str = field(repr=False)
    anonymous: bool = True

    def is_known(self, name: str) -> bool:
        """Whether a user who was let in has given a password of its own."""
        return not (self.anonymous and name in ("", ANONYMOUS))

    def role_of(self, name: str, password: str) -> Role:
        """The role of a user. Raises EngineError (AUTHENTICATION_FAILED) without the reason."""
        if name in ("", ANONYMOUS) and self.anonymous:
            return Role.READER
        for role, known in ((Role.READER, self.reader), (Role.ADMIN, self.admin)):
            # Compared even if the name differs, so that the time reveals nothing.
            same = hmac.compare_digest(password.encode(), known.encode())
            if same and password and name == role.value:
                return role
        raise EngineError(
            f"Code: 516. DB::Exception: {name or ANONYMOUS}: Authentication failed: password is "
            "incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)"
        )


def credentials(headers: Mapping[str, str], parameters: Mapping[str, str]) -> tuple[str, str]:
    """Name and password of a request: from X-ClickHouse-User and -Key, else basic authentication,
    else the parameters `user` and `password`. Raises EngineError for a malformed header."""
    if headers.get("X-ClickHouse-User") or headers.get("X-ClickHouse-Key"):
        return headers.get("X-ClickHouse-User", ""), headers.get("X-ClickHouse-Key", "")
    given = headers.get("Authorization", "")
    if given:
        return _basic(given)
    return parameters.get("user", ""), parameters.get("password", "")


def known_users(folder: Path, anonymous: bool) -> Users:
    """The users whose passwords are stored in a folder. Raises OSError."""
    return Users(*kept_passwords(folder), anonymous)


def kept_passwords(folder: Path) -> tuple[str, str]:
    """Passwords of reader and admin from files only their owner can read, created if missing.

    Raises SecretFileError.
    """
    return kept_secret(folder / READER_FILE), kept_secret(folder / ADMIN_FILE)


def _basic(header: str) -> tuple[str, str]:
    kind, _, text = header.partition(" ")
    try:
        decoded = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:  # not base64, not ASCII, or not UTF-8 inside
        decoded = ""
    if kind.lower() != "basic" or ":" not in decoded:
        raise EngineError(
            "Code: 516. DB::Exception: Only basic authentication is supported."
            " (AUTHENTICATION_FAILED)"
        )
    name, _, password = decoded.partition(":")
    return name, password
