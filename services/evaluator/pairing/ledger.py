"""The ledger of one pipeline and stage: one verdict for every expected output, and every latency.

Outputs are judged in append order, when everything appended up to their time has been read. An
output that no inputs explain yet waits, because it may have been appended before its inputs. It
becomes `unexpected` when the inputs have been read up to its own time plus the deadline. Outputs of
partial windows do not wait: more inputs would imply another output, so each is judged against the
inputs appended up to its own millisecond. Outputs of a window closed by event time are judged when
it is closed, however early they were appended; while it has no inputs at all they are `unexpected`,
which is retracted if it gets some. An output is due from its latest input, or from the time that
closed its window if that is later. Deadlines count from there, latencies always from the inputs.
Results depend on the contents of the topics alone (ARCHITECTURE.md, "Definitions").

- exact: the first output at its address, with the expected content, within the deadline
- wrong: the first output, with other content or a key other than the stage's (at any time)
- late: the first output, with the expected content, after the deadline: appended or, if the
  workload asks for it (`deadline_of`), visible to consumers of committed records
- missing: no output until `give_up_ms` after it was due; retracted if one arrives later
- duplicate: any further output, except those explained by a repeated input; neither has its latency
  counted. Also every output of an evicted group
- unexpected: an output that no inputs explain
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from schemas.protocol import Judgement, PhasePlan
from services.evaluator.columnar.columns import (
    LIMITS,
    UNKNOWN,
    Columns,
    Ints,
    StateLimits,
    first_of_each,
)
from services.evaluator.columnar.outputs import Outputs, Unread, Waiting
from services.evaluator.expected.stages import Expected, StageOracle
from services.evaluator.pairing.counters import (
    EvictedMissing,
    MatchLog,
    SocketTimes,
    StageCounters,
    first_of_each_second,
    missing_sample,
    unexpected_sample,
    wrong_sample,
)
from services.evaluator.pairing.hand_overs import HandOvers
from services.runtime.counting import MAX_SAMPLES, by_value

_CELLS: dict[str, tuple[Any, Any]] = {"outputs": (np.uint32, 0), "missing": (np.bool_, False)}
Sampler = Callable[[StageOracle, Outputs, int], dict[str, Any]]
MEASURE = 1  # index of "measure" in protocol.PHASES


def phase_codes(plan: PhasePlan, scheduled_us: Ints) -> Ints:
    """Phase of each scheduled time (epoch µs) as an index into `protocol.PHASES`."""
    bounds = np.array([plan.measure_start_ms, plan.measure_end_ms], np.int64) * 1000
    return np.searchsorted(bounds, scheduled_us, side="right").astype(np.int64)


class Ledger:
    """Judges the outputs of one stage of one pipeline with its oracle. by_input: also count
    measured latencies by the second of the latest input. hand_overs: of the inputs to the pipeline,
    if the run measures `processing_time`. sent: when the frames of the inputs of a system behind
    sockets were sent, nanoseconds. of_load: whether verdicts are awaited for the whole load."""

    def __init__(
        self,
        stage: StageOracle,
        judgement: Judgement,
        plan: PhasePlan,
        *,
        by_input: bool = False,
        hand_overs: HandOvers | None = None,
        sent: HandOvers | None = None,
        of_load: bool = False,
        limits: StateLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self.stage = stage
        self._by_input = by_input
        self._hand_overs = hand_overs
        self._sent = sent
        self._of_load = of_load
        self.socket_times = SocketTimes(limits.socket_times) if sent is not None else None
        # Measured outputs, not wrong, of which it is not known when they had their inputs. One that
        # lacks an input may have been published before the pipeline was handed that.
        self.not_handed = 0
        self.tally = StageCounters()
        self.pairs = MatchLog(limits.pairs_of_event)
        self._judgement = judgement
        self.plan = plan
        self._cells: dict[int, Columns] = {}
        self._unsettled: set[int] = set()  # groups in which outputs may be due
        self._answered: set[int] = set()  # those of them with none due at the last check
        self._unread = Unread()
        self._waiting = Waiting()
        self._early = Waiting()  # unexpected until their windows get inputs
        self.has_missing = False  # whether any output has ever been marked missing
        self._evicted_before: int | None = None
        self._evicted_missing = EvictedMissing(limits.evicted_missing)
        self.came_forgotten = 0  # outputs that arrived after they were evicted as missing

    @property
    def unread(self) -> int:
        """Number of outputs that wait until everything before them is known."""
        return len(self._unread)

    @property
    def waiting(self) -> int:
        """Number of outputs that no inputs explain yet."""
        return len(self._waiting)

    def open_outputs(self, time_ms: int) -> Iterator[tuple[int, Ints, Ints]]:
        """Groups with outputs that have no verdict and were appended before a time, with the
        outputs' indices and LogAppendTimes."""
        yield from self._waiting.places()
        for rows in self._unread.before(time_ms):
            for group, place in by_value(rows.group):
                yield group, rows.index[place], rows.appended_ms[place]

    def add(self, rows: Outputs, partitions: Ints) -> None:
        """Queue new outputs until everything before them has been read."""
        self._unread.add(rows, partitions)

    def release(self, time_ms: int) -> None:
        """Judge the outputs appended before a time, up to which everything has been read. Those
        that cannot be judged yet keep waiting."""
        for rows in self._unread.take_before(time_ms):
            self._judge(rows)

    def _judge(self, rows: Outputs) -> None:
        for group, place in by_value(rows.group):
            picked = rows.take(place)
            if self._is_evicted(group):
                self.came_forgotten += self._evicted_missing.came(group, picked.index)
                self._count("duplicate", self._own_phase(picked), picked.appended_ms)
            else:
                self._judge_group(group, picked)

    def refuse(self, appended_ms: Ints) -> None:
        """Count outputs that cannot be decoded as unexpected."""
        self._count("unexpected", phase_codes(self.plan, appended_ms * 1000), appended_ms)

    def retry(self, touched: set[int]) -> None:
        """Judge waiting outputs again whose inputs are in these groups, which have new inputs."""
        changed = {fed for each in touched for fed in self.stage.dependent_groups(each)}
        self._unsettled.update(each for each in changed if not self._is_evicted(each))
        self._answered -= changed
        early = self._early.take([group for group in self._early.groups() if group in changed])
        if early is not None:
            phase = self._own_phase(early)
            self.tally.add_verdicts("unexpected", phase, early.appended_ms, change=-1)
            self._judge(early)
        again = self._waiting.take([group for group in self._waiting.groups() if group in changed])
        if again is not None:
            self._judge(again)

    def mark_unexpected(self, input_frontier_ms: int) -> None:
        """Mark waiting outputs as unexpected once their deadline is past; all inputs appended
        before the frontier are known. Outputs of open windows keep waiting. Those of windows that
        may still get inputs are remembered, within the limits."""
        limit_ms = input_frontier_ms - self._judgement.deadline_ms
        lost = self._waiting.take_before(limit_ms, self.stage.is_open)
        if lost is None:
            return
        self._call_unexpected(lost)
        for group, place in by_value(lost.group):
            if self.stage.may_open(group, input_frontier_ms):
                early = lost.take(place)
                room = max(0, self._limits.early_outputs - len(self._early))
                self._early.add(early.take(slice(0, room)))

    def mark_missing(self, output_frontier_ms: int) -> None:
        """Mark overdue expected outputs as missing; all outputs appended before the frontier have
        been judged."""
        limit_ms = output_frontier_ms - self._judgement.give_up_ms
        for group in self._open_groups():
            if group not in self._answered:
                self._mark_missing_of(group, limit_ms)
            if self.stage.newest_ms(group) < limit_ms:
                self._unsettled.discard(group)
                self._answered.discard(group)

    def _mark_missing_of(self, group: int, limit_ms: int) -> None:
        at, expected = self._open(group)
        if not len(at):
            self._answered.add(group)
            return
        gone = expected.due_ms < limit_ms
        if not gone.any():
            return
        self._cells[group]["missing"][at[gone]] = True
        self.has_missing = True
        times = expected.latest_ms[gone]
        phase = phase_codes(self.plan, expected.scheduled_us[gone])
        self._count("missing", phase, times)
        for row in first_of_each_second(times, MAX_SAMPLES):
            sample = missing_sample(self.stage, group, int(at[gone][row]))
            self.tally.add_sample(int(phase[row]), int(times[row]), sample)

    def reopen(self, part: int, keys: Ints) -> None:
        """Retract missing verdicts of `keys` in the windows that contain a part, because it gets
        more inputs. They are judged again with all inputs."""
        for group in self.stage.dependent_groups(part):
            cells = self._cells.get(group)
            if cells is None or not cells["missing"].any():
                continue
            self._unsettled.add(group)
            self._answered.discard(group)
            at = np.flatnonzero(cells["missing"])
            at = at[np.isin(self.stage.codes(group, at), keys)]
            expected = self.stage.expected(group, at)
            cells["missing"][at] = False
            phase = phase_codes(self.plan, expected.scheduled_us)
            self.tally.add_verdicts("missing", phase, expected.latest_ms, change=-1)

    def open_in_measure(self) -> int:
        """Number of expected outputs of the measure phase, or of the whole load, without a
        verdict."""
        total = 0
        for group in self._open_groups():
            if group in self._answered:
                continue
            _at, expected = self._open(group)
            measured = phase_codes(self.plan, expected.scheduled_us) == MEASURE
            total += len(measured) if self._of_load else int(measured.sum())
        return total

    def evict(self, before: int) -> None:
        """Remove groups below `before`; call it before their inputs are evicted. Further outputs of
        these groups count as duplicates."""
        self._evicted_before = before
        self._unsettled = {group for group in self._unsettled if group >= before}
        self._answered &= self._unsettled
        for group in sorted(group for group in self._cells if group < before):
            missing = np.flatnonzero(self._cells.pop(group)["missing"])
            if len(missing):
                expected = self.stage.expected(group, missing)
                measured = phase_codes(self.plan, expected.scheduled_us) == MEASURE
                self._evicted_missing.add(group, self.stage.codes(group, missing[measured]))

    def settled(self, group: int, begun: int) -> bool:
        """Whether every output that the inputs of a group contribute to has its final verdict.
        begun: the newest group of inputs; outputs that need a newer part are not final."""
        if self.stage.parts(group)[-1] > begun:
            return False
        fed = self._unsettled.intersection(self.stage.dependent_groups(group))
        return not any(self.stage.size(each) for each in fed)

    def has_missing_in(self, group: int) -> bool:
        """Whether an output that the inputs of a group contribute to is missing, so that it may
        still arrive."""
        fed = [
            self._cells.get(dependent_group)
            for dependent_group in self.stage.dependent_groups(group)
        ]
        return any(cells["missing"].any() for cells in fed if cells is not None)

    def _is_evicted(self, group: int) -> bool:
        return self._evicted_before is not None and group < self._evicted_before

    def _open_groups(self) -> list[int]:
        """Groups in which outputs may be due and every part has inputs."""
        return [group for group in sorted(self._unsettled) if self.stage.size(group)]

    def _open(self, group: int) -> tuple[Ints, Expected]:
        size = self.stage.size(group)
        cells = self._cells.setdefault(group, Columns(_CELLS))
        cells.ensure(size)
        empty = (cells["outputs"][:size] == 0) & ~cells["missing"][:size]
        at = np.flatnonzero(empty)
        expected = self.stage.expected(group, at)
        keep = expected.implied
        return at[keep], expected.take(keep)

    def _judge_group(self, group: int, rows: Outputs) -> None:
        located, size = self.stage.located(rows), self.stage.size(group)
        known = (located.index >= 0) & (located.index < size)
        if not known.all():
            self._not_due(rows.take(np.flatnonzero(~known)))
            rows, located = (each.take(np.flatnonzero(known)) for each in (rows, located))
            if not len(rows):
                return
        expected = self.stage.expected(group, located.index)
        due = expected.implied
        if not expected.is_closed:
            early_ms = expected.latest_ms - rows.appended_ms
            due = due & (early_ms <= self._judgement.deadline_ms)
        if due.all():
            self._settle_group(located, expected)
            return
        self._not_due(rows.take(np.flatnonzero(~due)))
        if due.any():
            self._settle_group(located.take(np.flatnonzero(due)), expected.take(due))

    def _not_due(self, rows: Outputs) -> None:
        """Keep outputs, which are not located, waiting for later inputs, unless these would imply
        other outputs."""
        if self.stage.grows:
            self._call_unexpected(rows)
        else:
            self._waiting.add(rows)

    def _call_unexpected(self, rows: Outputs) -> None:
        phase = self._own_phase(rows)
        self._count("unexpected", phase, rows.appended_ms)
        self._sample(unexpected_sample, rows, phase)

    def _settle_group(self, rows: Outputs, expected: Expected) -> None:
        cells = self._cells.setdefault(int(rows.group[0]), Columns(_CELLS))
        cells.ensure(int(rows.index.max()) + 1)
        before = cells["outputs"][rows.index]
        distinct = first_of_each(rows.index)
        first = distinct & (before == 0)
        if distinct.all():
            cells["outputs"][rows.index] = before + 1
        else:
            np.add.at(cells["outputs"], rows.index, 1)
        phase = phase_codes(self.plan, expected.scheduled_us)
        if not first.all():
            again = self._unexplained(rows, before, np.flatnonzero(~first))
            self._count("duplicate", phase[again], rows.appended_ms[again])
            rows = rows.take(np.flatnonzero(first))
            expected, phase = expected.take(first), phase[first]
            if not len(rows):
                return
        self._take_back_missing(cells, rows, expected, phase)
        handed_ms = self._add_latencies(rows, expected, phase)
        same = self.stage.same(rows, self._judgement.relative_tolerance)
        if rows.keys is not None:
            same = same & rows.keys.is_right
        if handed_ms is not None:
            self.not_handed += int((same & (handed_ms == UNKNOWN) & (phase == MEASURE)).sum())
        late = self._judged_ms(rows) - expected.due_ms > self._judgement.deadline_ms
        if rows.places is not None:
            verdict = np.where(same, np.where(late, "late", "exact"), "wrong")
            self.pairs.add(rows, expected, phase, verdict, handed_ms)
        if same.all() and not late.any():
            self._count("exact", phase, rows.appended_ms)
            return
        self._count("exact", phase[same & ~late], rows.appended_ms[same & ~late])
        self._count("late", phase[same & late], rows.appended_ms[same & late])
        self._count("wrong", phase[~same], rows.appended_ms[~same])
        bad = np.flatnonzero(~same)
        if len(bad):
            self._sample(wrong_sample, rows.take(bad), phase[bad])

    def _unexplained(self, rows: Outputs, before: Ints, again: Ints) -> Ints:
        """Those of the rows `again` that exceed the number of outputs explained at their address.
        before: number of earlier outputs at the address of each row."""
        copies = self.stage.copies(int(rows.group[0]), rows.index[again])
        if copies is None or (copies == 1).all():
            return again
        count = dict(zip(rows.index.tolist(), before.tolist(), strict=True))
        number = np.empty(len(rows), np.int64)
        for row, address in enumerate(rows.index.tolist()):
            count[address] += 1
            number[row] = count[address]
        return again[number[again] > copies]

    def _take_back_missing(
        self, cells: Columns, rows: Outputs, expected: Expected, phase: Ints
    ) -> None:
        was = cells["missing"][rows.index]
        if not was.any():
            return
        cells["missing"][rows.index] = False
        self.tally.add_verdicts("missing", phase[was], expected.latest_ms[was], change=-1)

    def _add_latencies(self, rows: Outputs, expected: Expected, phase: Ints) -> Ints | None:
        """Count the latencies. Returns when the pipeline was handed the inputs, if it is noted."""
        out, handed_ms = rows.appended_ms, None
        by_definition = {
            "latest": out - expected.latest_ms,
            "mean": expected.mean_latency_ms(out),
            "event_time": out - expected.scheduled_us // 1000,
        }
        if expected.window_us is not None:
            by_definition["window_time"] = out - expected.window_us // 1000
        for definition, latency in by_definition.items():
            self.tally.add_latencies(definition, phase, out, latency)
        if rows.visible_ms is not None:
            known = np.flatnonzero(rows.visible_ms != UNKNOWN)
            latency = rows.visible_ms[known] - expected.latest_ms[known]
            self.tally.add_latencies("visible", phase[known], out[known], latency)
        if self._hand_overs is not None and expected.offsets is not None:
            handed_ms = self._hand_overs.of(expected.offsets)
            known = np.flatnonzero(handed_ms != UNKNOWN)
            latency = out[known] - handed_ms[known]
            self.tally.add_latencies("processing_time", phase[known], out[known], latency)
        if self._sent is not None and self.socket_times is not None:
            self._add_socket_times(self._sent, self.socket_times, rows, expected, phase)
        if self._by_input:
            in_measure = phase == MEASURE
            latest, output = expected.latest_ms[in_measure], out[in_measure]
            self.tally.add_by_input(latest, output, output - latest)
        return handed_ms

    @staticmethod
    def _add_socket_times(
        sent: HandOvers, times: SocketTimes, rows: Outputs, expected: Expected, phase: Ints
    ) -> None:
        measured = phase == MEASURE
        if rows.received_ns is None or expected.offsets is None:
            times.unknown += int(measured.sum())
            return
        sent_ns = sent.of(expected.offsets)
        known = measured & (sent_ns != UNKNOWN) & (rows.received_ns != UNKNOWN)
        times.unknown += int((measured & ~known).sum())
        times.add(rows.received_ns[known] - sent_ns[known])

    def _judged_ms(self, rows: Outputs) -> Ints:
        """The times that deadlines are compared with."""
        if self._judgement.deadline_of != "visible" or rows.visible_ms is None:
            return rows.appended_ms
        return np.where(rows.visible_ms == UNKNOWN, rows.appended_ms, rows.visible_ms)

    def _own_phase(self, rows: Outputs) -> Ints:
        """Phase of outputs whose inputs are unknown, by their own time."""
        return phase_codes(self.plan, rows.appended_ms * 1000)

    def _count(self, verdict: str, phase: Ints, time_ms: Ints) -> None:
        self.tally.add_verdicts(verdict, phase, time_ms)

    def _sample(self, tell: Sampler, rows: Outputs, phase: Ints) -> None:
        for row in first_of_each_second(rows.appended_ms, MAX_SAMPLES):
            sample = tell(self.stage, rows, row)
            self.tally.add_sample(int(phase[row]), int(rows.appended_ms[row]), sample)
