"""Problems that were reported, so that each is reported once. Pure."""

import hashlib
from collections.abc import Iterable
from typing import Final

MOST_TOLD: Final = 1_000
DIGITS: Final = 16  # of a digest


class Told:
    """The last MOST_TOLD problems, as digests."""

    def __init__(self, saved: Iterable[str] = ()) -> None:
        self._digests = dict.fromkeys(saved)

    def note(self, *parts: str) -> bool:
        """Note a problem; whether it was not noted before. parts: what identifies it."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
        if digest in self._digests:
            return False
        self._digests[digest] = None
        if len(self._digests) > MOST_TOLD:
            del self._digests[next(iter(self._digests))]
        return True

    def saved(self) -> list[str]:
        """The digests, oldest first."""
        return list(self._digests)
