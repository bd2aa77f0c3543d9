"""Turns verdicts into events: counts by run and second, and samples of offenders. Pure.

`SplitValues` are the most frequent values of the field that latency is split by, as codes.
MOST_VALUES values have a code of their own; all others share one. Once a minute of the records'
time, values with more than twice the records of values with a code displace these; the weight of a
record halves every minute. A code is reused when no record that has it is remembered.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schemas import catalogue
from schemas.protocol import VERDICTS
from schemas.watch import Watch
from services.runtime.counting import MAX_SAMPLES, Ints, by_value, count_cells, histograms
from services.watcher.copied_times import CopiedTimes
from services.watcher.group_lag import LagTotals
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    LOST,
    NONE_MS,
    UNEXPECTED,
    Codes,
    VerdictColumns,
)
from services.watcher.troubles import UnjudgedRecords, UnjudgedRow

MOST_NEW: Final = 10_000
Fields = dict[str, Any]
OTHERS: Final = b"(others)"
MOST_VALUES: Final = 200
MOST_COUNTED: Final = 2_000  # values
MOST_BYTES: Final = 200  # of a value; values that begin alike share a code
TURN_MS: Final = 60_000
DISPLACE: Final = 2
UNNAMED: Final = -1
# Name of each verdict code, and the change of its count.
NAMED: Final = {
    EXACT: ("exact", 1),
    LATE: ("late", 1),
    DUPLICATE: ("duplicate", 1),
    UNEXPECTED: ("unexpected", 1),
    LOST: ("missing", 1),
    FOUND: ("missing", -1),
}
MEASURE: Final = "measure"
LATEST: Final = "latest"
VISIBLE: Final = "visible"
PARTITION: Final = "partition"


class LatencyCounts:
    """Number of outputs by latency in milliseconds: 16 bytes for each distinct latency, and a
    dictionary of at most MOST_NEW that were added last."""

    def __init__(self) -> None:
        self._values = self._counts = np.empty(0, np.int64)
        self._new: Counter[int] = Counter()

    def add(self, latency_ms: int, count: int) -> None:
        """Add outputs with one latency."""
        self._new[latency_ms] += count
        if len(self._new) > MOST_NEW:
            self._merge()

    def columns(self) -> tuple[Ints, Ints]:
        """Latencies, ascending, and their counts."""
        self._merge()
        return self._values, self._counts

    def restore(self, values: Ints, counts: Ints) -> None:
        """Restore saved columns."""
        self._values, self._counts = values, counts

    def counts(self) -> Counter[int]:
        """The counts by latency."""
        values, counts = self.columns()
        return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _merge(self) -> None:
        if not self._new:
            return
        added = np.array([*self._new.items()], np.int64)
        values = np.concatenate([self._values, added[:, 0]])
        counts = np.concatenate([self._counts, added[:, 1]])
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.zeros(len(self._values), np.int64)
        np.add.at(self._counts, place, counts)
        self._new.clear()


@dataclass(frozen=True)
class WatchFigures:
    """Figures of a run, by the run's number."""

    topic: str
    run: int
    fields: Fields


class SplitValues:
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
        result = (self._codes.get(text, others) for text in short)
        return np.fromiter(result, np.int32, len(short))

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


class Slices:
    """Latency counts to be published. field: the path that latency is split by, or empty.
    place_name: name of a partition by its code. remember_ms: how long a record is remembered."""

    def __init__(
        self, where: Fields, field: str, place_name: Callable[[int], str], remember_ms: int
    ) -> None:
        self._where, self._field = where, field
        self._place_name = place_name
        self.values = SplitValues(remember_ms)
        self._counts: dict[tuple[int, str, str, int], Counter[int]] = defaultdict(Counter)

    def add(self, judged: VerdictColumns, run: Ints) -> None:
        """Count the latencies of outputs that have one."""
        timed = judged.verdict <= LATE
        latency_ms = (judged.output_ms - judged.input_ms)[timed]
        minute = judged.output_ms[timed] // 60_000
        dimensions = [(PARTITION, judged.place[timed], self._place_name)]
        if self._field:
            dimensions.append((self._field, judged.by[timed], self.values.names.__getitem__))
        for name, codes, name_of in dimensions:
            columns = (run[timed], codes.astype(np.int64), minute, latency_ms)
            for (number, code, at, latency), count in count_cells(*columns):
                if code != UNNAMED:
                    value = name_of(code)
                    self._counts[number, name, value, at][latency] += count

    def take(self) -> Iterator[WatchFigures]:
        """Events of the counts since the last call."""
        taken, self._counts = self._counts, defaultdict(Counter)
        for (number, dimension, value, at), counts in sorted(taken.items()):
            head = {**self._where, "dimension": dimension, "value": value, "minute": 60_000 * at}
            for part in histograms(counts):
                yield WatchFigures(catalogue.SLICES, number, head | part)


def _no_records() -> list[int]:
    """Records, bytes and aborted records of a second."""
    return [0, 0, 0]


@dataclass
class RunTotals:
    """Totals of a run so far. latencies, visible: of outputs until they are appended, and until
    consumers of committed records can have them. lags: of consumer groups, in the totals of the
    whole. unmeasured: why its timestamps do not measure latency, known at its end; empty if they
    do."""

    verdicts: Counter[str] = field(default_factory=Counter)
    inputs: int = 0
    outputs: int = 0
    refused: int = 0
    latencies: LatencyCounts = field(default_factory=LatencyCounts)
    visible: LatencyCounts = field(default_factory=LatencyCounts)
    copied: CopiedTimes = field(default_factory=CopiedTimes)
    not_judged: UnjudgedRecords = field(default_factory=UnjudgedRecords)
    lags: LagTotals = field(default_factory=LagTotals)
    unmeasured: str = ""

    def saved(self) -> Fields:
        """All but the latencies and times as JSON types."""
        counts = {"inputs": self.inputs, "outputs": self.outputs, "refused": self.refused}
        rest = {"copied": self.copied.saved()[1], "not_judged": self.not_judged.rows()}
        rest["lags"] = self.lags.saved()
        return {**counts, **rest, "verdicts": dict(self.verdicts)}


class Counting:
    """Counts of one watch by run; a run's number is its start in units of `run_ms`.

    place_of: topic and partition by place code. is_create: which place codes are of records with
    CreateTime.
    """

    def __init__(
        self,
        watch: Watch,
        place_of: Callable[[int], tuple[str, int]],
        is_create: Callable[[Codes], npt.NDArray[np.bool_]],
    ) -> None:
        self._where = {"pipeline": watch.name, "stage": watch.stage}
        self._run_ms = 1000 * watch.run_s
        sides = (*watch.inputs, *watch.outputs)
        field = next((side.by for side in sides if side.by), "")
        remember_ms = watch.relation.remember_ms
        self.slices = Slices(
            self._where, field, lambda code: "{}-{}".format(*place_of(code)), remember_ms
        )
        self._place_of = place_of
        self._is_create = is_create
        self.totals: dict[int, RunTotals] = defaultdict(RunTotals)
        self._throughput: dict[tuple[str, bool, int], list[int]] = defaultdict(_no_records)

    def run_of(self, time_ms: int) -> int:
        """The run that contains a time."""
        return time_ms // self._run_ms

    def add_records(self, topic: str, is_input: bool, times: Ints, sizes: Ints) -> None:
        """Count records read, and the bytes of their values."""
        seconds = times // 1000
        low = int(seconds.min())
        rows = seconds - low
        if int(rows.max()) > 4 * len(rows) + 4096:
            names, rows = np.unique(seconds, return_inverse=True)
        else:
            names = np.arange(low, int(seconds.max()) + 1)
        counts = np.bincount(rows)
        bytes_ = np.bincount(rows, sizes)
        for place in np.flatnonzero(counts).tolist():
            second = int(names[place])
            cell = self._throughput[topic, is_input, second]
            cell[0] += int(counts[place])
            cell[1] += int(bytes_[place])
            totals = self.totals[self.run_of(second * 1000)]
            if is_input:
                totals.inputs += int(counts[place])
            else:
                totals.outputs += int(counts[place])

    def add_aborted(self, topic: str, second_ms: int, records: int) -> None:
        """Count records of aborted transactions of an output topic."""
        self._throughput[topic, False, second_ms // 1000][2] += records

    def leave_out(self, row: UnjudgedRow, times: Ints) -> None:
        """Count records that are not judged, each in the run of its time."""
        runs, counts = np.unique(times // self._run_ms, return_counts=True)
        for run, count in zip(runs.tolist(), counts.tolist(), strict=True):
            totals = self.totals[run]
            totals.not_judged.add(replace(row, records=count))
            totals.refused += count if row.kind == "refused" else 0

    def end(self, run: int) -> RunTotals:
        """The totals of a run that ends."""
        totals = self.totals[run]

        def topic_of(code: int) -> str:
            return self._place_of(code)[0]

        totals.copied.look(topic_of)
        totals.unmeasured = totals.copied.reason(topic_of)
        return totals

    def throughput_events(self) -> Iterator[WatchFigures]:
        """Throughput since the last call."""
        taken, self._throughput = self._throughput, defaultdict(_no_records)
        for (topic, is_input, second), cell in sorted(taken.items()):
            where = {"pipeline": "", "stage": ""} if is_input else self._where
            named = zip(("records", "bytes", "aborted"), cell, strict=True)
            counts = {"second": second * 1000, **dict(named)}
            run = self.run_of(second * 1000)
            yield WatchFigures(catalogue.THROUGHPUT, run, {"topic": topic, **where, **counts})

    def events(self, judged: VerdictColumns) -> Iterator[WatchFigures]:
        """Latencies and verdicts by run. An output belongs to the run of its input or, without one,
        to that of its own time."""
        if not len(judged):
            return
        run = judged.about_ms // self._run_ms
        self.slices.add(judged, run)
        self._look_at_times(judged, run)
        timed = judged.verdict <= LATE
        yield from self._latencies(LATEST, judged.output_ms, judged, run, timed)
        known = timed & (judged.visible_ms != NONE_MS)
        yield from self._latencies(VISIBLE, judged.visible_ms, judged, run, known)
        yield from self._verdicts(judged, run)

    def _look_at_times(self, judged: VerdictColumns, run: Ints) -> None:
        """Look at the timestamps of outputs that have a latency and CreateTime."""
        timed = np.flatnonzero((judged.verdict <= LATE) & self._is_create(judged.place))
        for number, rows in by_value(run[timed]):
            self.totals[number].copied.add(judged.take(timed[rows]))

    def _latencies(
        self,
        definition: str,
        until_ms: Ints,
        judged: VerdictColumns,
        run: Ints,
        timed: npt.NDArray[np.bool_],
    ) -> Iterator[WatchFigures]:
        """Latencies until some times, of the outputs that have one."""
        latency_ms = (until_ms - judged.input_ms)[timed]
        cells: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        second = judged.output_ms[timed] // 1000
        for (number, at, latency), count in count_cells(run[timed], second, latency_ms):
            cells[number, at][latency] += count
            totals = self.totals[number]
            (totals.visible if definition == VISIBLE else totals.latencies).add(latency, count)
        for (number, at), counts in sorted(cells.items()):
            head = {**self._where, "definition": definition, "phase": MEASURE, "second": at * 1000}
            for part in histograms(counts):
                yield WatchFigures(catalogue.LATENCY, number, head | part)

    def _verdicts(self, judged: VerdictColumns, run: Ints) -> Iterator[WatchFigures]:
        is_lost = (judged.verdict == LOST) | (judged.verdict == FOUND)
        second = np.where(is_lost, judged.input_ms, judged.output_ms) // 1000
        cells: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        verdicts = judged.verdict.astype(np.int64)
        for (number, at, verdict), count in count_cells(run, second, verdicts):
            name, change = NAMED[verdict]
            cells[number, at][name] += change * count
            self.totals[number].verdicts[name] += change * count
        samples = self._samples(judged, run, second)
        for (number, at), counts in sorted(cells.items()):
            yield WatchFigures(
                catalogue.VERDICTS,
                number,
                {
                    **self._where,
                    "phase": MEASURE,
                    "second": at * 1000,
                    **{verdict: counts[verdict] for verdict in VERDICTS},
                    "samples": samples.get((number, at), []),
                },
            )

    def _samples(
        self, judged: VerdictColumns, run: Ints, second: Ints
    ) -> dict[tuple[int, int], list[str]]:
        """Positions of some offenders of each verdict in each second."""
        bad = np.flatnonzero((judged.verdict != EXACT) & (judged.verdict != FOUND))
        result: dict[tuple[int, int], list[str]] = defaultdict(list)
        kept: Counter[tuple[int, int, int]] = Counter()
        columns = (run, second, judged.verdict, judged.place, judged.offset)
        times = (judged.input_ms, judged.output_ms)
        for row in bad[: 100 * MAX_SAMPLES].tolist():
            number, at, verdict, place, offset = (int(column[row]) for column in columns)
            kept[number, at, verdict] += 1
            if kept[number, at, verdict] > MAX_SAMPLES:
                continue
            topic, partition = self._place_of(place)
            sample: Fields = {"verdict": NAMED[verdict][0], "topic": topic}
            sample |= {"partition": partition, "offset": offset}
            for name, column in zip(("input_ms", "output_ms"), times, strict=True):
                if column[row] != NONE_MS:
                    sample[name] = int(column[row])
            result[number, at].append(json.dumps(sample))
        return result

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Fields]]:
        """Latencies as columns, and other totals as JSON types, for `restore`."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for run, totals in self.totals.items():
            columns[f"latency_{run}"], columns[f"latency_count_{run}"] = totals.latencies.columns()
            columns[f"visible_{run}"], columns[f"visible_count_{run}"] = totals.visible.columns()
            columns[f"copied_{run}"] = totals.copied.saved()[0]
        return columns, {str(run): totals.saved() for run, totals in self.totals.items()}

    def restore(self, columns: dict[str, npt.NDArray[Any]], totals: dict[str, Fields]) -> None:
        """Restore saved totals."""
        for run, fields in totals.items():
            self.totals[int(run)] = result = RunTotals(
                Counter(fields["verdicts"]), fields["inputs"], fields["outputs"], fields["refused"]
            )
            result.latencies.restore(columns[f"latency_{run}"], columns[f"latency_count_{run}"])
            if f"visible_{run}" in columns:  # not in releases up to 0.1.0
                result.visible.restore(columns[f"visible_{run}"], columns[f"visible_count_{run}"])
            result.copied.restore(columns[f"copied_{run}"], fields["copied"])
            for row in fields["not_judged"]:
                result.not_judged.add(UnjudgedRow(**row))
            if "lags" in fields:  # not in releases up to 0.1.0
                result.lags.restore(fields["lags"])
