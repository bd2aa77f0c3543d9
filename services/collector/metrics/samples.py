"""What every source of figures gives, and how a counter becomes an increase. Pure."""

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
    """A source gave nothing that can be used; the text is one sentence that says why."""


class Source(Protocol):
    """Something that is asked for samples now and then."""

    @property
    def name(self) -> str:
        """Its name in the results."""

    def ask(self) -> list[Sample]:
        """Its samples now, within a bounded time. Raises NoAnswerError."""


class Increases:
    """By how much the counters of one source grew from answer to answer.

    A counter that is less than before began again at 0 when its target did, so it grew by what it
    shows. What grew between the last answer of a target and its end is not known.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def of(self, samples: Sequence[Sample]) -> list[float | None]:
        """The increase of each sample since the call before this one; None for what is no counter
        and for a series that the call before did not have."""
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
    """By how much a counter grew; never negative."""
    now, before = max(0.0, now), max(0.0, before)
    return now - before if now >= before else now
