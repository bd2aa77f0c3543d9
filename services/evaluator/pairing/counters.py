"""Unpublished counts of one pipeline and stage: exact millisecond latencies, verdicts, samples of
offenders, single pairs; and records per second of a topic.

Counts are additive, so they can be flushed at any time and in any number of events. Samples contain
values instead of the evaluator's internal codes, so their content depends on the records alone:

{"verdict": "wrong", "gem_pack_id": "g7", "window_start": 1800000000000,
 "expected": {"window_end": 1800000008000, "revenue": 12.5}, "actual": {…}}

A pair is identified by the position of its output: `pack_offsets` packs partition and offset into
one integer.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.percentiles import LEVELS, RANKED
from schemas.protocol import INPUT_SECOND, PHASES, VERDICTS
from services.evaluator.columnar.columns import LIMITS, UNKNOWN, Ints
from services.evaluator.columnar.outputs import Outputs
from services.evaluator.expected.stages import Expected, StageOracle
from services.runtime.counting import MAX_SAMPLES, by_value, count_cells, histograms

MAX_SAMPLE_CHARACTERS = 16_000  # so that the samples of a second fit into one event
OFFSET_BITS = 48
_OFFSETS = (1 << OFFSET_BITS) - 1
Column = np.ndarray[Any, Any]
MAX_KEY_CHARACTERS = 200


@dataclass
class StageCounters:
    """Counts of one pipeline and stage. Arrays have one cell per output row."""

    latencies: dict[tuple[str, str, int], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    by_input: dict[tuple[int, int], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    verdicts: dict[tuple[str, int], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    samples: dict[tuple[str, int], dict[str, list[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add_latencies(
        self, definition: str, phase: Ints, appended_ms: Ints, latency_ms: Ints
    ) -> None:
        """Count latencies by phase and second of output time."""
        for (code, second, latency), count in count_cells(phase, appended_ms // 1000, latency_ms):
            self.latencies[definition, PHASES[code], second * 1000][latency] += count

    def add_by_input(self, input_ms: Ints, output_ms: Ints, latency_ms: Ints) -> None:
        """Count latencies by second of the latest input and minute of the output."""
        cells = count_cells(input_ms // 1000, output_ms // 60_000, latency_ms)
        for (second, minute, latency), count in cells:
            self.by_input[second, minute * 60_000][latency] += count

    def add_verdicts(self, verdict: str, phase: Ints, time_ms: Ints, change: int = 1) -> None:
        """Count one verdict by phase and second; `change` -1 retracts an earlier one."""
        for (code, second), count in count_cells(phase, time_ms // 1000):
            self.verdicts[PHASES[code], second * 1000][verdict] += change * count

    def add_sample(self, phase: int, time_ms: int, sample: dict[str, Any]) -> None:
        """Keep a sample of an offender. Only the first few of each second are kept."""
        kept = self.samples[PHASES[phase], time_ms - time_ms % 1000][sample["verdict"]]
        if len(kept) < MAX_SAMPLES:
            kept.append(_text_of(sample))

    def take_latency_events(self) -> list[dict[str, Any]]:
        """Fields of `results_latency` events for everything counted since the last call."""
        taken, self.latencies = self.latencies, defaultdict(Counter)
        return [
            {"definition": definition, "phase": phase, "second": second} | part
            for (definition, phase, second), counts in sorted(taken.items())
            for part in histograms(counts)
        ]

    def take_slice_events(self) -> list[dict[str, Any]]:
        """Fields of `results_slices` events for everything counted since the last call."""
        taken, self.by_input = self.by_input, defaultdict(Counter)
        return [
            {"dimension": INPUT_SECOND, "value": str(second), "minute": minute} | part
            for (second, minute), counts in sorted(taken.items())
            for part in histograms(counts)
        ]

    def take_verdict_events(self) -> list[dict[str, Any]]:
        """Fields of `results_verdicts` events for everything counted since the last call."""
        taken, self.verdicts = self.verdicts, defaultdict(Counter)
        samples, self.samples = self.samples, defaultdict(lambda: defaultdict(list))
        return [
            {
                "phase": phase,
                "second": second,
                "samples": [*chain.from_iterable(samples[phase, second].values())],
                **{verdict: counts[verdict] for verdict in VERDICTS},
            }
            for (phase, second), counts in sorted(taken.items())
        ]


@dataclass
class Throughput:
    """Records and bytes of one topic per second of LogAppendTime, and records of aborted
    transactions, which are not among them."""

    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: Counter[int] = field(default_factory=Counter)

    def add(self, appended_ms: Ints, sizes: Ints) -> None:
        """Count records and the bytes of their values."""
        if not len(appended_ms):
            return
        for second, rows in by_value(appended_ms // 1000):
            had = self.seconds.get(second * 1000, (0, 0))
            own = sizes[rows]
            self.seconds[second * 1000] = (had[0] + len(own), had[1] + int(own.sum()))

    def add_aborted(self, seconds: Mapping[int, int]) -> None:
        """Count records of aborted transactions by second (epoch ms)."""
        self.aborted.update(seconds)

    def take(self) -> list[dict[str, Any]]:
        """`second`, `records`, `bytes` and `aborted` counted since the last call."""
        taken, self.seconds = self.seconds, {}
        aborted, self.aborted = self.aborted, Counter()
        result = []
        for second in sorted(taken.keys() | aborted.keys()):
            records, size = taken.get(second, (0, 0))
            fields = {"second": second, "records": records, "bytes": size}
            result.append(fields | {"aborted": aborted[second]})
        return result


class SocketTimes:
    """Latencies of one stage behind sockets in the measure phase, nanoseconds, all kept. limit: of
    latencies; further ones are `unknown`, as are those of outputs without stamps."""

    def __init__(self, limit: int = LIMITS.socket_times) -> None:
        self._limit = limit
        self._parts: list[Ints] = []
        self.count = 0
        self.unknown = 0

    def add(self, latency_ns: Ints) -> None:
        """Add latencies."""
        kept = latency_ns[: self._limit - self.count]
        self.unknown += len(latency_ns) - len(kept)
        self.count += len(kept)
        if len(kept):
            self._parts.append(kept)

    def figures(self) -> dict[str, int | float | None]:
        """The RANKED figures of `schemas.percentiles` and the mean; None without latencies."""
        if not self.count:
            return dict.fromkeys((*RANKED, "mean"))
        values = np.sort(np.concatenate(self._parts))
        self._parts = [values]
        levels = {"min": 0.0, **LEVELS, "max": 1.0}
        at = {name: max(1, math.ceil(level * self.count)) - 1 for name, level in levels.items()}
        ranked = {name: int(values[place]) for name, place in at.items()}
        return ranked | {"mean": float(values.mean())}


def _text_of(sample: dict[str, Any]) -> str:
    """A sample as JSON; of a long one the verdict and the beginning."""
    text = json.dumps(sample, default=str)
    if len(text) <= MAX_SAMPLE_CHARACTERS:
        return text
    beginning = text[: MAX_SAMPLE_CHARACTERS // 2]
    return json.dumps({"verdict": sample["verdict"], "truncated": beginning})


def pack_offsets(partition: Ints, offset: Ints) -> Ints:
    """Partition and offset of each record, packed into one integer."""
    packed: Ints = (partition << OFFSET_BITS) | offset
    return packed


class MatchLog:
    """Pairs of one pipeline and stage, in the order in which they were judged. limit: of pairs in
    one event."""

    def __init__(self, limit: int = LIMITS.pairs_of_event) -> None:
        self._limit = limit
        self._parts: list[tuple[Column, ...]] = []

    def add(
        self,
        rows: Outputs,
        expected: Expected,
        phase: Ints,
        verdict: Column,
        handed_ms: Ints | None = None,
    ) -> None:
        """Store the pairs of judged outputs; none if their offsets are unknown. handed_ms: when the
        pipeline had their inputs, None if no proxy notes it."""
        if rows.places is not None:
            unknown = np.full(len(rows), UNKNOWN, np.int64)
            times = (expected.latest_ms, expected.mean_input_ms(), expected.scheduled_us)
            visible_ms = unknown if rows.visible_ms is None else rows.visible_ms
            handed_ms = unknown if handed_ms is None else handed_ms
            judged = (phase, verdict, rows.places, rows.appended_ms)
            self._parts.append((*judged, *times, visible_ms, handed_ms))

    def take_events(self) -> Iterator[dict[str, Any]]:
        """Fields of `results_pairs` events for everything stored since the last call."""
        taken, self._parts = self._parts, []
        if not taken:
            return
        columns = [np.concatenate(parts) for parts in zip(*taken, strict=True)]
        for start in range(0, len(columns[0]), self._limit):
            part = [column[start : start + self._limit] for column in columns]
            phase, verdict, place, appended_ms, latest_ms, mean_ms, scheduled_us, *more = part
            yield {
                "phases": [PHASES[code] for code in phase.tolist()],
                "verdicts": verdict.tolist(),
                "partitions": (place >> OFFSET_BITS).tolist(),
                "offsets": (place & _OFFSETS).tolist(),
                "appended_ms": appended_ms.tolist(),
                "latest_input_ms": latest_ms.tolist(),
                "mean_input_ms": mean_ms.tolist(),
                "scheduled_us": scheduled_us.tolist(),
                **_known("visible_from_ms", more[0]),
                **_known("handed_ms", more[1]),
            }


def _known(name: str, times_ms: Column) -> dict[str, list[int | None]]:
    """A field with None for each unknown time; no field if all are."""
    if (times_ms == UNKNOWN).all():
        return {}
    return {name: [None if at == UNKNOWN else at for at in times_ms.tolist()]}


def without(fields: dict[str, Any], published: Ints) -> dict[str, Any] | None:
    """An event without the pairs already published, given as sorted packed offsets; None if nothing
    is left."""
    place = pack_offsets(
        np.array(fields["partitions"], np.int64), np.array(fields["offsets"], np.int64)
    )
    keep = np.flatnonzero(~np.isin(place, published)).tolist()
    if not keep:
        return None
    return {
        name: [value[row] for row in keep] if isinstance(value, list) else value
        for name, value in fields.items()
    }


class EvictedMissing:
    """Missing outputs of one stage of one pipeline that were evicted, at most `limit`.
    Beyond that, every output of an older group counts as one of them, so that none goes
    unreported."""

    def __init__(self, limit: int = LIMITS.evicted_missing) -> None:
        self._limit = limit
        self._by_group: dict[int, Ints] = {}
        self._count = 0
        self._unknown_before: int | None = None

    def add(self, group: int, index: Ints) -> None:
        """Store the missing addresses of an evicted group; groups must be added in order."""
        if len(index):
            self._by_group[group] = index
            self._count += len(index)
        while self._count > self._limit:
            oldest = next(iter(self._by_group))
            self._count -= len(self._by_group.pop(oldest))
            self._unknown_before = oldest + 1

    def came(self, group: int, index: Ints) -> int:
        """How many of these outputs of one group were evicted as missing. Each address counts
        once."""
        if self._unknown_before is not None and group < self._unknown_before:
            return len(index)
        known = self._by_group.get(group)
        if known is None:
            return 0
        left = np.setdiff1d(known, index)
        # Outputs of closed windows are not located any more; each counts as one of them.
        left = left[min(int((index == UNKNOWN).sum()), len(left)) :]
        self._by_group[group] = left
        self._count -= len(known) - len(left)
        return len(known) - len(left)


def missing_sample(stage: StageOracle, group: int, index: int) -> dict[str, Any]:
    """Sample of an expected output that is missing."""
    address = stage.address(group, index)
    return {"verdict": "missing", **address, "expected": stage.expected_values(group, index)}


def unexpected_sample(stage: StageOracle, rows: Outputs, row: int) -> dict[str, Any]:
    """Sample of an output that no inputs explain."""
    return {"verdict": "unexpected", **stage.address_of(rows, row), "actual": stage.said(rows, row)}


def wrong_sample(stage: StageOracle, rows: Outputs, row: int) -> dict[str, Any]:
    """Sample of an output whose content or key differs from the expected."""
    group, index = int(rows.group[row]), int(rows.index[row])
    address = stage.address(group, index)
    expected, actual = stage.expected_values(group, index), stage.said(rows, row)
    if rows.keys is not None and not rows.keys.is_right[row]:
        name = pa.scalar(address[stage.key_column(group, index)])
        expected["key"] = name.cast(pa.string()).as_py()  # as in `judged_keys`
        actual["key"] = _key_text(rows.keys.values[row])
    return {"verdict": "wrong", **address, "expected": expected, "actual": actual}


def first_of_each_second(time_ms: Ints, most: int) -> list[int]:
    """The first `most` rows of every second."""
    every = np.arange(len(time_ms))
    return [row for _, rows in by_value(time_ms // 1000) for row in every[rows][:most].tolist()]


def _key_text(key: bytes | None) -> str | None:
    text = None if key is None else key.decode("utf-8", "backslashreplace")
    return text if text is None else text[:MAX_KEY_CHARACTERS]
