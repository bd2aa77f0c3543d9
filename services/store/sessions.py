"""Sessions of the HTTP interface: the settings and the database that earlier requests of a session
have chosen by SET and USE. Used in one event loop.

A session belongs to one user. Unlike in ClickHouse, requests of one session may run at the same
time.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.store.engine import EngineError

MOST_SESSIONS: Final = 1000
MOST_SETTINGS: Final = 200
MOST_BYTES: Final = 64 * 1024
DEFAULT_S: Final = 60
LONGEST_S: Final = 3600


@dataclass
class Session:
    """What a session has chosen. database: empty if it has not chosen any."""

    until_s: float = 0.0
    database: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def choose(self, settings: Mapping[str, str]) -> None:
        """Remember settings for later requests. Raises EngineError."""
        both = self.settings | dict(settings)
        if len(both) > MOST_SETTINGS or sum(map(len, both.values())) > MOST_BYTES:
            raise EngineError("Code: 36. DB::Exception: A session has too many settings.")
        self.settings = both


class Sessions:
    """The sessions of all users. At the limit, a new one replaces the one that expires first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], Session] = {}

    def of(self, user: str, given: Mapping[str, str]) -> Session:
        """The session of a request, from its parameters; one of its own if it names none. Raises
        EngineError."""
        name = given.get("session_id", "")
        if not name:
            return Session()
        now_s = self._clock()
        self._known = {key: one for key, one in self._known.items() if one.until_s > now_s}
        key = (user, name)
        if key not in self._known and given.get("session_check") == "1":
            raise EngineError("Code: 372. DB::Exception: Session not found. (SESSION_NOT_FOUND)")
        session = self._known.setdefault(key, Session())
        session.until_s = now_s + _timeout_s(given.get("session_timeout", ""))
        if len(self._known) > MOST_SESSIONS:
            others = (each for each in self._known if each != key)
            del self._known[min(others, key=lambda each: self._known[each].until_s)]
        return session


def _timeout_s(asked: str) -> int:
    if not asked:
        return DEFAULT_S
    if not (asked.isascii() and asked.isdecimal() and len(asked) < 10):
        raise EngineError(
            f"Code: 664. DB::Exception: Invalid session timeout: '{asked[:40]}'."
            " (INVALID_SESSION_TIMEOUT)"
        )
    if int(asked) > LONGEST_S:
        raise EngineError(
            f"Code: 664. DB::Exception: Session timeout '{asked}' is larger than {LONGEST_S}."
            " (INVALID_SESSION_TIMEOUT)"
        )
    return int(asked)
