"""Turns verdicts into events: counts by run and second, and samples of offenders. Pure."""

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
from services.runtime.cells import Ints, by_value, count_cells
from services.runtime.reconciling import MAX_SAMPLES, histograms
from services.watcher.copied_times import CopiedTimes
from services.watcher.events import Event, Fields
from services.watcher.latencies import Latencies
from services.watcher.not_judged import NotJudged, Row
from services.watcher.records import (
    DUPLICATE,
    EXACT,
    FOUND,
    LATE,
    LOST,
    NONE_MS,
    UNEXPECTED,
    Codes,
    Judged,
)
from services.watcher.values import UNNAMED, Values

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


PARTITION: Final = "partition"


class Slices:
    """Latency counts to be published. field: the path that latency is split by, or empty.
    place_name: name of a partition by its code. remember_ms: how long a record is remembered."""

    def __init__(
        self, where: Fields, field: str, place_name: Callable[[int], str], remember_ms: int
    ) -> None:
        self._where, self._field = where, field
        self._place_name = place_name
        self.values = Values(remember_ms)
        self._counts: dict[tuple[int, str, str, int], Counter[int]] = defaultdict(Counter)

    def add(self, judged: Judged, run: Ints) -> None:
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

    def take(self) -> Iterator[Event]:
        """Events of the counts since the last call."""
        taken, self._counts = self._counts, defaultdict(Counter)
        for (number, dimension, value, at), counts in sorted(taken.items()):
            told = {**self._where, "dimension": dimension, "value": value, "minute": 60_000 * at}
            for part in histograms(counts):
                yield Event(catalogue.SLICES, number, told | part)


@dataclass
class RunTotals:
    """Totals of a run so far. unmeasured: why its timestamps do not measure latency, known at its
    end; empty if they do."""

    verdicts: Counter[str] = field(default_factory=Counter)
    inputs: int = 0
    outputs: int = 0
    refused: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    copied: CopiedTimes = field(default_factory=CopiedTimes)
    not_judged: NotJudged = field(default_factory=NotJudged)
    unmeasured: str = ""

    def saved(self) -> Fields:
        """All but the latencies and times as JSON types."""
        counts = {"inputs": self.inputs, "outputs": self.outputs, "refused": self.refused}
        rest = {"copied": self.copied.saved()[1], "not_judged": self.not_judged.rows()}
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
        field = next((one.by for one in sides if one.by), "")
        remember_ms = watch.relation.remember_ms
        self.slices = Slices(
            self._where, field, lambda code: "{}-{}".format(*place_of(code)), remember_ms
        )
        self._place_of = place_of
        self._is_create = is_create
        self.totals: dict[int, RunTotals] = defaultdict(RunTotals)
        self._throughput: dict[tuple[str, bool, int], list[int]] = defaultdict(lambda: [0, 0])

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

    def leave_out(self, row: Row, times: Ints) -> None:
        """Count records that are not judged, each in the run of its time."""
        runs, counts = np.unique(times // self._run_ms, return_counts=True)
        for run, count in zip(runs.tolist(), counts.tolist(), strict=True):
            totals = self.totals[run]
            totals.not_judged.add(replace(row, records=count))
            totals.refused += count if row.kind == "refused" else 0

    def end(self, run: int) -> RunTotals:
        """The totals of a run that ends."""
        totals = self.totals[run]
        totals.copied.look()
        totals.unmeasured = totals.copied.reason(lambda code: self._place_of(code)[0])
        return totals

    def throughput_events(self) -> Iterator[Event]:
        """Throughput since the last call."""
        taken, self._throughput = self._throughput, defaultdict(lambda: [0, 0])
        for (topic, is_input, second), (records, bytes_) in sorted(taken.items()):
            where = {"pipeline": "", "stage": ""} if is_input else self._where
            counts = {"second": second * 1000, "records": records, "bytes": bytes_}
            run = self.run_of(second * 1000)
            yield Event(catalogue.THROUGHPUT, run, {"topic": topic, **where, **counts})

    def events(self, judged: Judged) -> Iterator[Event]:
        """Latencies and verdicts by run. An output belongs to the run of its input or, without one,
        to that of its own time."""
        if not len(judged):
            return
        run = judged.about_ms // self._run_ms
        self.slices.add(judged, run)
        self._look_at_times(judged, run)
        yield from self._latencies(judged, run)
        yield from self._verdicts(judged, run)

    def _look_at_times(self, judged: Judged, run: Ints) -> None:
        """Look at the timestamps of outputs that have a latency and CreateTime."""
        timed = np.flatnonzero((judged.verdict <= LATE) & self._is_create(judged.place))
        for number, rows in by_value(run[timed]):
            self.totals[number].copied.add(judged.take(timed[rows]))

    def _latencies(self, judged: Judged, run: Ints) -> Iterator[Event]:
        timed = judged.verdict <= LATE
        latency_ms = (judged.output_ms - judged.input_ms)[timed]
        cells: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        second = judged.output_ms[timed] // 1000
        for (number, at, latency), count in count_cells(run[timed], second, latency_ms):
            cells[number, at][latency] += count
            self.totals[number].latencies.add(latency, count)
        for (number, at), counts in sorted(cells.items()):
            told = {**self._where, "definition": LATEST, "phase": MEASURE, "second": at * 1000}
            for part in histograms(counts):
                yield Event(catalogue.LATENCY, number, told | part)

    def _verdicts(self, judged: Judged, run: Ints) -> Iterator[Event]:
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
            yield Event(
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

    def _samples(self, judged: Judged, run: Ints, second: Ints) -> dict[tuple[int, int], list[str]]:
        """Positions of some offenders of each verdict in each second."""
        bad = np.flatnonzero((judged.verdict != EXACT) & (judged.verdict != FOUND))
        found: dict[tuple[int, int], list[str]] = defaultdict(list)
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
            found[number, at].append(json.dumps(sample))
        return found

    def saved(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Fields]]:
        """Latencies as columns, and other totals as JSON types, for `restore`."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for run, totals in self.totals.items():
            columns[f"latency_{run}"], columns[f"latency_count_{run}"] = totals.latencies.columns()
            columns[f"copied_{run}"] = totals.copied.saved()[0]
        return columns, {str(run): totals.saved() for run, totals in self.totals.items()}

    def restore(self, columns: dict[str, npt.NDArray[Any]], totals: dict[str, Fields]) -> None:
        """Restore saved totals."""
        for run, fields in totals.items():
            self.totals[int(run)] = found = RunTotals(
                Counter(fields["verdicts"]), fields["inputs"], fields["outputs"], fields["refused"]
            )
            found.latencies.restore(columns[f"latency_{run}"], columns[f"latency_count_{run}"])
            found.copied.restore(columns[f"copied_{run}"], fields["copied"])
            for row in fields["not_judged"]:
                found.not_judged.add(Row(**row))
