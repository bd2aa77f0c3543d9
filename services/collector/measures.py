"""Measures other than processor, memory, processes and threads. Pure.

Any value may be None: it cannot be read, or does not exist for this process. Sums skip None, and
are None if all values are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

MeasuresT = TypeVar("MeasuresT", "Counters", "Gauges")


@dataclass(frozen=True)
class Counters:
    """Monotonic counters of a process, or of the machine since boot. Disk and network in bytes;
    times in seconds; gc_count: finished collections; jit_seconds: compiler time. Names are those of
    the events."""

    read_bytes: int | None = None
    written_bytes: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    gc_seconds: float | None = None
    gc_count: int | None = None
    jit_seconds: float | None = None
    steal_seconds: float | None = None
    cpu_pressure_seconds: float | None = None
    io_pressure_seconds: float | None = None
    memory_pressure_seconds: float | None = None
    run_queue_wait_seconds: float | None = None


@dataclass(frozen=True)
class Gauges:
    """Current values. heap_*: of a JVM. load_1m and frequency_mhz: of the machine."""

    open_files: int | None = None
    heap_used_bytes: int | None = None
    heap_capacity_bytes: int | None = None
    heap_max_bytes: int | None = None
    load_1m: float | None = None
    frequency_mhz: float | None = None


NO_COUNTERS, NO_GAUGES = Counters(), Gauges()


def total(measures: Iterable[MeasuresT], kind: type[MeasuresT]) -> MeasuresT:
    """The sum of each measure."""
    return _each(list(measures), kind, sum)


def growth(now: Counters, before: Counters) -> Counters:
    """Increase of each counter; never negative."""

    def grown(values: list[Any]) -> Any:
        return max(0, values[0] - values[1]) if len(values) == 2 else None

    return _each([now, before], Counters, grown)


def _each(
    measures: list[MeasuresT], kind: type[MeasuresT], combine: Callable[[list[Any]], Any]
) -> MeasuresT:
    combined = {}
    for field in fields(kind):
        known = [v for m in measures if (v := getattr(m, field.name)) is not None]
        combined[field.name] = combine(known) if known else None
    return kind(**combined)
