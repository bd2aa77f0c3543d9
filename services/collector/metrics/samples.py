"""Samples of metrics sources, and increases of counters. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"


@dataclass(frozen=True)
class Sample:
    """One series at one time. kind: counter, gauge or untyped. value: finite."""

    name: str
    labels: Mapping[str, str]
    kind: str
    value: float


class NoAnswerError(Exception):
    """A source returned nothing usable; the text is one sentence with the reason."""


class Source(Protocol):
    """A metrics source that is polled."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    def ask(self) -> list[Sample]:
        """Its current samples, within a bounded time. Raises NoAnswerError."""


class Increases:
    """Increases of the counters of one source between answers.

    A counter that decreased was reset to 0, so its increase is its current value. The increase
    between the last answer and the reset is not known.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def of(self, samples: Sequence[Sample]) -> list[float | None]:
        """The increase of each sample since the previous call; None for samples that are not
        counters and for series missing in the previous call."""
        keys = [(sample.name, frozenset(sample.labels.items())) for sample in samples]
        counters = [sample.kind == COUNTER for sample in samples]
        found = [
            growth(sample.value, self._before[key]) if counted and key in self._before else None
            for sample, key, counted in zip(samples, keys, counters, strict=True)
        ]
        self._before = {
            key: sample.value
            for sample, key, counted in zip(samples, keys, counters, strict=True)
            if counted
        }
        return found


def growth(now: float, before: float) -> float:
    """Increase of a counter; never negative."""
    now, before = max(0.0, now), max(0.0, before)
    return now - before if now >= before else now
