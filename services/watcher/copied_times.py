"""Recognises output timestamps that are not the times of publishing. Pure.

Sinks and mirrors may copy the timestamp of the input, or set the end of a window. The difference
between input and output is then a constant, where a measured latency varies: even if the true one
were constant, rounding both times to milliseconds would spread it over two neighbouring values. So
a latency that is frequent without its neighbours is not measured. Only CreateTime can be copied.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from services.runtime.counting import Ints, by_value
from services.watcher.records import VerdictColumns

BLOCK: Final = 200  # distinct pairs of a partition that are looked at together
MOST_AT_ONCE: Final = 20_000  # outputs of a batch that are looked at, about
LEAST_SHARE: Final = 0.01  # of the outputs looked at; fewer do not change a percentile
FAST_MS: Final = 10
LEAST_PAIRS: Final = 5  # of fewer distinct pairs, each counts as often as it occurred
INPUT, WINDOW, SECOND = "input", "window", "second"  # what a timestamp is a constant away from
NO_PAIRS: Final = np.empty((0, 5), np.int64)  # place, input, output, end of window; occurrences


class CopiedTimes:
    """The outputs of a run with CreateTime.

    looked: number of outputs looked at. found: those whose timestamps are not the times of
    publishing, by partition code, what they are a constant away from, and this constant.
    """

    def __init__(self) -> None:
        self.looked = 0
        self.found: Counter[tuple[int, str, int]] = Counter()
        self._pairs = NO_PAIRS  # not looked at yet

    def add(self, judged: VerdictColumns) -> None:
        """Add outputs that have a latency."""
        few = judged.take(slice(None, None, 1 + len(judged) // MOST_AT_ONCE))
        times = (few.input_ms, few.output_ms, few.end_us // 1000)
        rows = np.stack((few.place.astype(np.int64), *times), axis=1)
        rows, counts = np.unique(rows, axis=0, return_counts=True)
        self._pairs = np.concatenate((self._pairs, np.column_stack((rows, counts))))
        self._look(BLOCK)

    def look(self, topic_of: Callable[[int], str]) -> None:
        """Look at what is left at the end of the run. Partitions of a topic with few pairs, which
        say nothing each, are looked at together. topic_of: the topic of a partition code."""
        self._look(LEAST_PAIRS)
        topics = np.array([topic_of(place) for place in self._pairs[:, 0].tolist()])
        for topic in sorted({*topics.tolist()}):
            pairs = self._pairs[topics == topic]
            self._look_at(int(pairs[0, 0]), pairs)
        self._pairs = NO_PAIRS

    def _look(self, least: int) -> None:
        """Look at the partitions that have so many pairs."""
        is_left = np.ones(len(self._pairs), bool)
        for place, rows in by_value(self._pairs[:, 0]):
            pairs = self._pairs[rows]
            if len(pairs) >= least:
                is_left[rows] = False
                self._look_at(place, pairs)
        self._pairs = self._pairs[is_left]

    def _look_at(self, place: int, pairs: Ints) -> None:
        _, inputs, outputs, ends, counts = pairs.T
        self.looked += int(counts.sum())
        weights = None if len(pairs) >= LEAST_PAIRS else counts
        away = {INPUT: (outputs - inputs, constant_of(outputs - inputs, weights))}
        if ends.any():
            away[WINDOW] = (outputs - ends, constant_of(outputs - ends, weights, 1))
        away[SECOND] = (outputs % 1000, second_of(outputs))
        for what, (differences, constant) in away.items():
            if constant is not None:
                count = int(counts[differences == constant].sum())
                self.found[place, what, constant] += count
                return

    def reason(self, topic_of: Callable[[int], str]) -> str:
        """Why the timestamps do not measure latency; empty if they do. topic_of: the topic of a
        partition code."""
        if sum(self.found.values()) < max(1.0, LEAST_SHARE * self.looked):
            return ""
        counts: Counter[tuple[str, str]] = Counter()
        for (place, what, constant), count in self.found.items():
            counts[topic_of(place), _told(what, constant)] += count
        (topic, what), count = counts.most_common(1)[0]
        return f"{count} of {self.looked} timestamps in {topic} are {what}"

    def saved(self) -> tuple[Ints, dict[str, Any]]:
        """As an array and JSON types, for `restore`."""
        result = [[*each, count] for each, count in self.found.items()]
        return self._pairs.ravel(), {"looked": self.looked, "found": result}

    def restore(self, pairs: Ints, saved: dict[str, Any]) -> None:
        """Restore saved state."""
        self._pairs, self.looked = pairs.reshape(-1, NO_PAIRS.shape[1]), saved["looked"]
        self.found = Counter({(p, what, far): count for p, what, far, count in saved["found"]})


def constant_of(
    differences: Ints, weights: Ints | None = None, fast_ms: int = FAST_MS
) -> int | None:
    """The constant that all or many of these differences are, in milliseconds; None if they vary.
    Below fast_ms, other than 0, more of them are needed: a fast pipeline comes close to that.

    >>> constant_of(np.array([0, 0, 0])), constant_of(np.array([3, 4, 3, 5, 4, 3]))
    (0, None)
    """
    values, which = np.unique(differences, return_inverse=True)
    counts = np.bincount(which, weights)
    place = int(counts.argmax())
    constant, most, total = int(values[place]), counts[place], counts.sum()
    near = counts[np.abs(values - constant) == 1].sum()
    if 0 < abs(constant) < fast_ms:
        return constant if most >= 50 and 20 * near <= most else None
    is_all = most == total and most >= (5 if constant else 3)
    is_most = most >= 5 and not near and 5 * most >= 4 * total
    is_apart = most >= 10 and 10 * near <= most and 10 * most >= total
    return constant if is_all or is_most or is_apart else None


def second_of(times_ms: Ints) -> int | None:
    """The millisecond that nine in ten of at least five times have in their second; else None."""
    values, counts = np.unique(np.unique(times_ms) % 1000, return_counts=True)
    most, total = counts.max(), counts.sum()
    return int(values[counts.argmax()]) if most >= 5 and 10 * most >= 9 * total else None


def _told(what: str, constant: int) -> str:
    if what == SECOND:
        return "at the same millisecond of a second"
    whose = "that of the input" if what == INPUT else "the end of the window"
    if not constant:
        return f"exactly {whose}"
    return f"exactly {abs(constant)} ms {'after' if constant > 0 else 'before'} {whose}"
