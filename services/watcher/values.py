"""The most frequent values of the field that latency is split by, as codes. Pure.

MOST_VALUES values have a code of their own; all others share one. Once a minute of the records'
time, values with more than twice the records of values with a code displace these; the weight of a
record halves every minute. A code is reused when no record that has it is remembered.
"""

from collections import Counter
from typing import Final

import numpy as np

from services.runtime.cells import Ints
from services.watcher.records import NONE_MS, Codes

OTHERS: Final = b"(others)"
MOST_VALUES: Final = 200
MOST_COUNTED: Final = 2_000  # values
MOST_BYTES: Final = 200  # of a value; values that begin alike share a code
TURN_MS: Final = 60_000
DISPLACE: Final = 2
UNNAMED: Final = -1


class Values:
    """Codes of one field's values. remember_ms: how long a record is remembered.

    names: the value of each code, as text.
    """

    def __init__(self, remember_ms: int) -> None:
        self._remember_ms = remember_ms
        self._codes: dict[bytes | None, int] = {None: UNNAMED}
        self.names: list[str] = []
        self._counts: dict[bytes, float] = {}
        # By displaced value: its code, and the time of the newest record that can have it.
        self._resting: dict[bytes, tuple[int, int]] = {}
        self._newest_ms = self._turn_ms = NONE_MS

    def codes(self, texts: list[bytes | None], times: Ints) -> Codes:
        """The code of each value; UNNAMED if a record lacks the field. times: of the records."""
        self._newest_ms = max(self._newest_ms, int(times.max(initial=NONE_MS)))
        short = [text if text is None else text[:MOST_BYTES] for text in texts]
        for text, count in Counter(short).items():
            if text is None:
                continue
            if text not in self._codes:
                self._add(text if len(self.names) < MOST_VALUES else OTHERS)
            if text in self._counts or len(self._counts) < MOST_COUNTED:
                self._counts[text] = self._counts.get(text, 0) + count
        others = self._codes.get(OTHERS, UNNAMED)
        found = (self._codes.get(text, others) for text in short)
        return np.fromiter(found, np.int32, len(short))

    def turn(self, before_ms: int) -> None:
        """Once a minute, give codes to values that became frequent. before_ms: everything earlier
        has been judged."""
        if before_ms < self._turn_ms:
            return
        self._turn_ms = before_ms + TURN_MS
        counts = self._counts
        self._counts = {text: count / 2 for text, count in counts.items() if count >= 2}
        newcomers = sorted(counts.keys() - self._codes.keys(), key=counts.__getitem__, reverse=True)
        rest = len(self._resting)
        for text in newcomers[:rest]:
            self._give(text, before_ms)
        held = sorted(
            (counts.get(text, 0), text) for text in self._codes if text not in (None, OTHERS)
        )
        for text, (few, old) in zip(newcomers[rest:], held, strict=False):
            if counts[text] <= DISPLACE * few:
                break
            self._resting[old] = (self._codes.pop(old), self._newest_ms)

    def restore(self, names: list[str]) -> None:
        """Restore saved values."""
        self.names = []
        for name in names:
            self._add(name.encode())

    def _give(self, text: bytes, before_ms: int) -> None:
        """Give a value the code that it had, or one that no remembered record has, if any."""
        if text in self._resting:
            self._codes[text], _ = self._resting.pop(text)
            return
        for old, (code, newest_ms) in self._resting.items():
            if newest_ms < before_ms - self._remember_ms:
                del self._resting[old]
                self._codes[text], self.names[code] = code, _name(text)
                return

    def _add(self, text: bytes) -> None:
        if text not in self._codes:
            self._codes[text] = len(self.names)
            self.names.append(_name(text))


def _name(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
