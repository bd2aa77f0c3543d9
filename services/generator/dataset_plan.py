"""Everything that determines the records of a load, and the rows generated from it. Pure.

The rows of a load are a function of the plan, the load's start and the sequence only.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import fault_rules
from schemas.content import DUPLICATE, LATE, NONE
from schemas.domain import DomainSpec
from schemas.load import Replay
from schemas.protocol import RunRequest
from schemas.records import Int64s, Part, RecordedTimes, Records, Values
from services.generator.shapes import LoadShape, ReplayShape, Slice, shape_of

MAX_HELD_RECORDS = 1_000_000
EXTRA = -1  # in Rows.second: the second copy of a duplicate, counted in no second


@dataclass(frozen=True)
class LoadShard:
    """The records of a load that instance `index` of `count` generators sends: those with sequence
    // turn ≡ `index` modulo `count`. Every record belongs to exactly one instance, for every load
    shape. turn: records per turn."""

    index: int = 0
    count: int = 1
    turn: int = 2

    def before(self, sequence: int) -> int:
        """Number of records below `sequence` in this shard."""
        if self.count == 1:
            return sequence
        rounds, rest = divmod(sequence, self.turn * self.count)
        return self.turn * rounds + min(max(rest - self.turn * self.index, 0), self.turn)

    def sequences(self, first: int, end: int) -> Int64s:
        """The records from `first` to `end` (exclusive) in this shard."""
        every = np.arange(first, end, dtype=np.int64)
        if self.count == 1:
            return every
        ours: Int64s = every[(every // self.turn) % self.count == self.index]
        return ours


@dataclass(frozen=True)
class RecordArrays:
    """Records as arrays with one element per record.

    sequence: number in the run. due_us: scheduled time, in microseconds after the load's start.
    second: second of the load in which the record is counted, -1 for the second copy of a
    duplicate. fault: kind of fault. values: its values in the form of the domain
    (schemas/records.py).
    """

    sequence: Int64s
    due_us: Int64s
    second: NDArray[np.int32]
    fault: NDArray[np.int8]
    values: Values

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, index: "NDArray[np.int64] | NDArray[np.bool_] | slice") -> "RecordArrays":
        """Select rows."""
        values = {name: array[index] for name, array in self.values.items()}
        return RecordArrays(
            self.sequence[index], self.due_us[index], self.second[index], self.fault[index], values
        )


def concatenated(parts: list[RecordArrays]) -> RecordArrays:
    """Concatenate rows; needs at least one part."""
    if len(parts) == 1:
        return parts[0]

    def joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(arrays)

    return RecordArrays(
        joined([part.sequence for part in parts]),
        joined([part.due_us for part in parts]),
        joined([part.second for part in parts]),
        joined([part.fault for part in parts]),
        {name: joined([part.values[name] for part in parts]) for name in parts[0].values},
    )


@dataclass(frozen=True)
class DatasetPlan:
    """A request, its records from the domain, and this instance's shard of the load."""

    request: RunRequest
    domain: DomainSpec
    records: Records
    shape: LoadShape
    shard: LoadShard

    @property
    def event_second_us(self) -> int:
        """Length of a second of event time, in microseconds."""
        return self.request.workload.content.second_ms * 1000

    def domain_at(self, second: int) -> DomainSpec:
        """The domain with the topics written in a second of the load."""
        turns = self.request.interleaved
        return self.domain if turns is None else self._domains[turns.turn(second)]

    @cached_property
    def _domains(self) -> dict[str, DomainSpec]:
        """Domains by pipeline, for pipelines with their own input topics."""
        names = (share.pipelines[0].name for share in self.request.shares)
        return dict(zip(names, self.request.domains, strict=True))

    @cached_property
    def _in_turn(self) -> dict[str, NDArray[np.bool_]]:
        """Whether each record of a turn is of an input, by its name."""
        turn = np.array(self.records.turn, object)
        return {each.name: np.asarray(turn == each.name) for each in self.domain.inputs}

    def rows(self, part: Slice, load_start_ms: int, end_us: int) -> RecordArrays:
        """The rows of a slice in sequence order. A duplicate occurs once, a late record has its
        actual send time. end_us: end of the load, from its start."""
        sequences = self.shard.sequences(part.first, part.end)
        due_us = self.shape.scheduled_us(sequences)
        values = self.records.values(
            Part(
                sequences=sequences,
                due_us=due_us,
                load_start_ms=load_start_ms,
                event_second=part.event_second,
                event_first=part.event_first,
                event_records=part.event_records,
                scheduled_us=self.shape.scheduled_us,
            )
        )
        kinds = np.full(len(sequences), NONE, np.int8)
        faults, seed = self.request.workload.faults, self.request.seed
        if faults.any:
            kinds = fault_rules.kinds(faults, seed, sequences)
            late = kinds == LATE
            delays_us = fault_rules.delays_us(faults, seed, sequences)
            due_us = np.where(late, np.minimum(due_us + delays_us, end_us - 1), due_us)
        seconds = np.full(len(sequences), part.second, np.int32)
        return RecordArrays(sequences, due_us, seconds, kinds, values)

    def rows_of(self, name: str, rows: RecordArrays) -> RecordArrays:
        """The rows of one input."""
        size, is_own = len(self.records.turn), self._in_turn[name]
        if np.count_nonzero(is_own) == 1 and not self.request.workload.faults.any:
            # In sequence order, so the rows of an input are evenly spaced.
            first = (int(is_own.argmax()) - int(rows.sequence[0])) % size
            return rows.take(slice(first, None, size))
        return rows.take(is_own[rows.sequence % size])


def dataset_plan(
    request: RunRequest, domain: DomainSpec, records: Records, index: int = 0, count: int = 1
) -> DatasetPlan:
    """The plan of generator `index` of `count` in a run. Raises ValueError with one sentence if it
    cannot be executed."""
    load, faults = request.workload.load, request.workload.faults
    strangers = set(records.turn) - {each.name for each in domain.inputs}
    if strangers or not records.turn:
        raise ValueError(f"the records of {domain.name} are not of its inputs: {records.turn}")
    shape = _replay(request, load, records) if isinstance(load, Replay) else shape_of(load)
    held = faults.late * load.peak_per_second * faults.late_ms / 1000
    if held > MAX_HELD_RECORDS:
        raise ValueError(
            f"faults.late and late_ms would hold back {held:,.0f} records at a time, "
            f"more than the limit of {MAX_HELD_RECORDS:,}"
        )
    for each in domain.inputs:
        if faults.impossible and each.impossible is None:
            raise ValueError(
                f"the domain {domain.name} does not define an impossible record of {each.name}"
            )
    return DatasetPlan(request, domain, records, shape, LoadShard(index, count, len(records.turn)))


def _replay(request: RunRequest, load: Replay, records: Records) -> ReplayShape:
    recorded: RecordedTimes | None = records.recorded_times()
    if recorded is None:
        raise ValueError("a replay needs recorded event times, and these records have none")
    speed, times_us = load.speed, recorded.times_us
    elapsed_us = ((times_us - times_us[0]) / speed).astype(np.int64)
    period_us = max(int(recorded.period_us / speed), int(elapsed_us[-1]) + 1)
    copies = request.workload.content.copies
    per_time = 1 if recorded.per_record else len(records.turn) * copies
    return ReplayShape(elapsed_us, period_us, per_time)


def sent_rows(rows: RecordArrays) -> RecordArrays:
    """The rows in the order of sending, with duplicates twice."""
    twice = rows.fault == DUPLICATE
    if twice.any():
        second = np.where(twice, EXTRA, rows.second).astype(np.int32)
        index = np.repeat(np.arange(len(rows)), 1 + twice)
        copies = np.concatenate(([False], index[1:] == index[:-1]))
        taken = rows.take(index)
        taken.second[copies] = second[index][copies]
        rows = taken
    order = np.argsort(rows.due_us, kind="stable")
    return rows.take(order)
