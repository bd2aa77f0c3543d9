"""The evaluation of one run: batches of records in, events for the bus out. Pure: no Kafka, no
clock; the frontiers state how far the topics have been read.

    evaluation = Evaluation(plan, phases)
    refused = evaluation.add(batch)                    # of any of `evaluation.topics`
    evaluation.advance(input_frontier_ms, output_frontier_ms)
    for topic, fields in evaluation.take_events(): ...
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schemas import catalogue, codec
from schemas.domain import StageSpec
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.columnar.column_mapping import OFFSET, SOURCE, NotJudgedError
from services.evaluator.columnar.columns import LIMITS, Ints, StateLimits
from services.evaluator.columnar.decode import (
    Decoded,
    UndecodedRecord,
    at_places,
    decode,
    input_decoder,
)
from services.evaluator.columnar.outputs import OutputKeys, UndecodableCopies, judged_keys
from services.evaluator.expected.oracles import Oracles
from services.evaluator.expected.stages import State
from services.evaluator.expected.window_recipe import PARTITION
from services.evaluator.pairing.append_order import AppendOrder
from services.evaluator.pairing.counters import SocketTimes, Throughput
from services.evaluator.pairing.hand_overs import HandOvers
from services.evaluator.pairing.ledger import Ledger
from services.runtime.counting import by_value


def check_judged(plan: RunPlan, instances: int) -> None:
    """Raise NotJudgedError if this number of evaluators cannot judge a run together, or none
    can."""
    request = plan.request
    domain = request.domain
    partitions = {
        topic: len(offsets)
        for topic, offsets in plan.start_offsets.items()
        if topic != catalogue.FETCHES  # each evaluator reads all hand-overs
    }
    if instances > 1 and len(set(partitions.values())) > 1:
        counts = ", ".join(f"{topic} {count}" for topic, count in partitions.items())
        raise NotJudgedError(
            f"Several evaluators require the same number of partitions for all topics: {counts}."
        )
    for name in (stage for pipeline in request.pipelines for stage in request.stages_of(pipeline)):
        spec = domain.stage(name)
        other = next(
            (each for each in domain.inputs_of(name) if spec.key not in ("", each.key)), None
        )
        if other is not None and instances > 1:
            raise NotJudgedError(
                f"Several evaluators cannot judge the stage {name}: its outputs have the key "
                f"{spec.key}, and the records of {other.topic} have the key {other.key}."
            )
        if instances > 1 and any(
            each.is_windowed and each.complete is None for each in domain.chain(name)
        ):
            raise NotJudgedError(
                f"Several evaluators cannot judge the stage {name}: its windows close by the event "
                "time of all partitions."
            )
    Evaluation(plan, PhasePlan(load_start_ms=0, phases=request.workload.phases))


def digests(values: list[bytes | None]) -> Ints:
    """64-bit hashes of whole encoded values, comparable within this process."""
    return np.fromiter(map(hash, values), np.int64, len(values))


@dataclass(frozen=True)
class RecordBatch:
    """Records of one topic, in offset order within each partition: appended_ms (LogAppendTime) and
    values.

    partitions: if the topic has several. offsets: of inputs, if the run measures `processing_time`
    or has a system behind sockets; stamps_ns: of its inputs and outputs, when their frames were
    sent or received (schemas.frame.STAMP_HEADER), UNKNOWN without one.
    Outputs also have keys; places (`pack_offsets`), if single pairs are requested; visible_ms, when
    consumers of committed records could read them, if a partition has transactions (UNKNOWN for
    records of others).
    """

    topic: str
    appended_ms: Ints
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    partitions: Ints | None = None
    places: Ints | None = None
    visible_ms: Ints | None = None
    offsets: Ints | None = None
    stamps_ns: Ints | None = None


class Evaluation:
    """Matches and judges all pipelines and stages of one run. shares: number of evaluations that
    share the memory, one for each pipeline of an interleaved run."""

    def __init__(
        self, plan: RunPlan, phases: PhasePlan, shares: int = 1, limits: StateLimits = LIMITS
    ) -> None:
        self._limits = limits
        request, workload = plan.request, plan.request.workload
        self._shares = shares
        self.run_id = request.run_id
        self._domain = plan.request.domain
        self._decode = input_decoder(workload.content.format)
        self._deadline_ms = workload.judgement.deadline_ms
        self._raw_copies = UndecodableCopies()
        published = [stage for each in request.pipelines for stage in request.stages_of(each)]
        duplicated = (workload.faults, request.seed) if workload.faults.duplicate else None
        self._hand_overs: dict[str, HandOvers] = {}
        self._sources: dict[tuple[str, int], int] = {}
        self._sent: HandOvers | None = None
        if workload.has_proxy or request.socket_pipeline is not None:
            for topic in self._domain.topics:
                for partition in range(len(plan.start_offsets.get(topic, ()))):
                    self._sources[topic, partition] = len(self._sources)
        if request.socket_pipeline is not None:
            self._sent = HandOvers(self._sources)
        if workload.has_proxy:
            names = (each.name for each in request.pipelines)
            self._hand_overs = {name: HandOvers(self._sources) for name in names}
        self._oracles = Oracles(
            self._domain,
            published,
            base_ms=phases.load_start_ms,
            deadline_ms=self._deadline_ms,
            duplicated=duplicated,
            sources=len(self._sources),
            limits=limits,
            run_id=request.run_id,
        )
        self._measured_us = 1000 * phases.measure_start_ms, 1000 * phases.measure_end_ms
        self.ledgers: dict[str, Ledger] = {}
        self.where: dict[str, tuple[str, str]] = {}
        for pipeline in request.pipelines:
            for name in request.stages_of(pipeline):
                topic = catalogue.output_topic(pipeline.name, name)
                stage = self._oracles.stage(name, pipeline.incomplete_windows == "publish")
                self.ledgers[topic] = Ledger(
                    stage,
                    workload.judgement,
                    phases,
                    by_input=shares > 1,
                    hand_overs=self._hand_overs.get(pipeline.name),
                    sent=self._sent,
                    of_load=request.counts_losses(name),
                    limits=limits,
                )
                self.where[topic] = (pipeline.name, name)
        self._append_order = AppendOrder([*self.ledgers.values()])
        self._kinds = {each.topic: kind for kind, each in enumerate(self._domain.inputs)}
        self.inputs = self._domain.topics
        self.topics = (*self.inputs, *self.ledgers)
        self._throughput = {topic: Throughput() for topic in self.topics}

    def replan(self, phases: PhasePlan) -> None:
        """Set a measured phase that begins and ends earlier than planned. No record read so far
        belongs to it."""
        self._measured_us = 1000 * phases.measure_start_ms, 1000 * phases.measure_end_ms
        for ledger in self.ledgers.values():
            ledger.plan = phases

    @property
    def states(self) -> list[State]:
        """The stored state of the inputs."""
        return self._oracles.states

    def cells(self) -> int:
        """Cells in memory; each takes 44 to 100 bytes."""
        return sum(state.cells() for state in self.states)

    def add(self, batch: RecordBatch) -> list[UndecodedRecord]:
        """Add records of one topic, or events of `results.fetches`. Returns those that cannot be
        decoded."""
        if batch.topic == catalogue.FETCHES:
            self._add_fetches(batch)
            return []
        if batch.topic not in self._kinds:
            return self._add_outputs(batch)
        self._note_sent(batch)
        record = self._domain.input(batch.topic).record
        decoded, refused = self._decode(self._domain.codec, (record,), batch.values)
        for rows in decoded:
            self._add_input(batch, rows.of_run(self.run_id))
        for each in refused if self._oracles.compares_bytes else ():
            self._raw_copies.add_input(batch.values[each.place], int(batch.appended_ms[each.place]))
        return refused

    def _add_outputs(self, batch: RecordBatch) -> list[UndecodedRecord]:
        spec = self.ledgers[batch.topic].stage.spec
        is_copy = spec.kind == "copy"
        read = self._decode if is_copy else decode
        records = tuple(dict.fromkeys(self._domain.records_of(spec.name)))
        decoded, refused = read(self._domain.codec, records, batch.values)
        for rows in decoded:
            self._take_outputs(batch, spec, rows.of_run(self.run_id))
        lost = np.array([each.place for each in refused], np.int64)
        if not is_copy:
            self.ledgers[batch.topic].refuse(batch.appended_ms[lost])
        else:
            for place in lost.tolist():
                appended_ms = int(batch.appended_ms[place])
                self._raw_copies.add_output(batch.topic, batch.values[place], appended_ms)
        return refused

    def advance(self, input_frontier_ms: int, output_frontier_ms: int) -> None:
        """Give the verdicts that depend on time. All records of input (output) topics appended
        before the frontier have been added. Nothing is judged before the hand-overs up to then are
        known, if the run has them."""
        both_ms = min(input_frontier_ms, output_frontier_ms, *self._handed_until_ms)
        self._oracles.close(both_ms)
        for time_ms in self._append_order.steps(both_ms):
            self._retry()
            for ledger in self.ledgers.values():
                ledger.release(time_ms)
        for ledger in self.ledgers.values():
            ledger.mark_unexpected(both_ms)
            ledger.mark_missing(both_ms)
        for topic, appended_ms in self._raw_copies.unexpected(both_ms, self._deadline_ms):
            self.ledgers[topic].refuse(np.array([appended_ms], np.int64))
        self._evict(both_ms)

    def add_aborted(self, aborted: Mapping[str, Mapping[int, int]]) -> None:
        """Count records of aborted transactions, by topic and second."""
        for topic, seconds in aborted.items():
            self._throughput[topic].add_aborted(seconds)

    def open_in_measure(self) -> int:
        """Number of expected outputs of the measure phase without a verdict, of windows that may
        have some, and of waiting records."""
        self._retry()
        waiting = len(self._raw_copies) + len(self._append_order)
        waiting += self._oracles.open_between(*self._measured_us)
        if self._hand_overs:
            waiting += sum(ledger.unread for ledger in self.ledgers.values())
        return waiting + sum(
            ledger.open_in_measure() + ledger.waiting for ledger in self.ledgers.values()
        )

    @property
    def came_forgotten(self) -> int:
        """Outputs of the measure phase that arrived after their expected output was evicted as
        missing under memory pressure. They count as missing and as duplicate, and their latency is
        unknown."""
        return sum(ledger.came_forgotten for ledger in self.ledgers.values())

    @property
    def not_handed(self) -> int:
        """Outputs of the measure phase, not wrong, without `processing_time`, because it is not
        known when their inputs were handed over."""
        return sum(ledger.not_handed for ledger in self.ledgers.values())

    def socket_latencies(self) -> Iterator[tuple[str, str, SocketTimes]]:
        """Pipeline and stage, and the times of the measure phase so far, of a system behind
        sockets."""
        for topic, ledger in self.ledgers.items():
            if ledger.socket_times is not None:
                yield (*self.where[topic], ledger.socket_times)

    def take_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Topic and fields of every event since the last call."""
        self._retry()
        for topic, throughput in self._throughput.items():
            pipeline, stage = self.where.get(topic, ("", ""))
            for fields in throughput.take():
                yield (
                    catalogue.THROUGHPUT,
                    {"topic": topic, "pipeline": pipeline, "stage": stage, **fields},
                )
        for topic, ledger in self.ledgers.items():
            pipeline, stage = self.where[topic]
            head = {"pipeline": pipeline, "stage": stage}
            for fields in ledger.tally.take_latency_events():
                yield catalogue.LATENCY, head | fields
            for fields in ledger.tally.take_verdict_events():
                yield catalogue.VERDICTS, head | fields
            for fields in ledger.tally.take_slice_events():
                yield catalogue.SLICES, head | fields
            for fields in ledger.pairs.take_events():
                yield catalogue.PAIRS, head | fields

    def _add_input(self, batch: RecordBatch, decoded: Decoded) -> None:
        appended_ms = self._count(batch, decoded)
        digest = self._digests(batch, decoded) if self._oracles.compares_bytes else appended_ms
        rows = self._oracles.rows(self._kinds[batch.topic], decoded, appended_ms, digest)
        if len(rows):
            if batch.partitions is not None:
                mine = self._origin(batch, batch.partitions[decoded.places], decoded)
                rows = replace(rows, numbers=rows.numbers | mine)
            self._oracles.add(rows)
            self._append_order.add(rows)

    def _origin(self, batch: RecordBatch, partitions: Ints, decoded: Decoded) -> dict[str, Ints]:
        """Columns that say where input records are from."""
        if batch.offsets is None or not self._sources:
            return {PARTITION: partitions}
        source = self._sources[batch.topic, 0] + partitions
        return {PARTITION: partitions, SOURCE: source, OFFSET: batch.offsets[decoded.places]}

    def _note_sent(self, batch: RecordBatch) -> None:
        if self._sent is None or batch.stamps_ns is None or batch.offsets is None:
            return
        none = np.zeros(len(batch.values), np.int64)
        for partition, rows in by_value(none if batch.partitions is None else batch.partitions):
            source = self._sources[batch.topic, partition]
            self._sent.note(source, batch.offsets[rows], batch.stamps_ns[rows])

    def _add_fetches(self, batch: RecordBatch) -> None:
        for value in batch.values:
            _, event = codec.decode(value)
            hand_overs = self._hand_overs.get(event["pipeline"])
            if hand_overs is not None and event["run_id"] == self.run_id:
                hand_overs.add(event)

    @property
    def _handed_until_ms(self) -> list[int]:
        return [each.until_ms for each in self._hand_overs.values()]

    def _retry(self) -> None:
        """Judge waiting outputs whose inputs have arrived."""
        touched = {state: state.take_touched() for state in self.states}
        for ledger in self.ledgers.values():
            mine = touched[ledger.stage.state]
            if mine:
                ledger.retry(mine)

    def _take_outputs(self, batch: RecordBatch, spec: StageSpec, decoded: Decoded) -> None:
        appended_ms = self._count(batch, decoded)
        # Only copies compare whole values; the other stages compare columns.
        digest = self._digests(batch, decoded) if spec.kind == "copy" else appended_ms
        ledger = self.ledgers[batch.topic]
        rows = replace(
            ledger.stage.outputs(decoded, appended_ms, digest),
            places=None if batch.places is None else batch.places[decoded.places],
            visible_ms=None if batch.visible_ms is None else batch.visible_ms[decoded.places],
            keys=self._keys(batch, spec, decoded),
            received_ns=None if batch.stamps_ns is None else batch.stamps_ns[decoded.places],
        )
        none = np.zeros(len(rows), np.int64)
        partitions = none if batch.partitions is None else batch.partitions[decoded.places]
        ledger.add(rows, partitions)

    def _count(self, batch: RecordBatch, decoded: Decoded) -> Ints:
        appended_ms = batch.appended_ms[decoded.places]
        self._throughput[batch.topic].add(appended_ms, decoded.sizes)
        return appended_ms

    def _keys(self, batch: RecordBatch, spec: StageSpec, decoded: Decoded) -> OutputKeys | None:
        assert batch.keys is not None
        keys = at_places(batch.keys, decoded.places)
        inputs = self._domain.inputs_of(spec.name)
        of_input = next((each.key for each in inputs if each.record == decoded.record), "")
        return judged_keys(keys, decoded.coded(spec.key or of_input))

    @staticmethod
    def _digests(batch: RecordBatch, decoded: Decoded) -> Ints:
        return digests(at_places(batch.values, decoded.places))

    def _evict(self, now_ms: int) -> None:
        """Evict the oldest groups with final verdicts. Normally these are groups in which
        nothing is missing, older than the limit. When the state exceeds its part of the
        cells it is any, up to the older half. A group whose windows still need parts has no final
        verdict."""
        full = self.cells() > self._limits.cells // self._shares
        old_ms = now_ms if full else now_ms - 1000 * self._limits.keep_s
        for state in self.states:
            newest = state.newest_ms
            ledgers = [each for each in self.ledgers.values() if each.stage.state is state]
            groups = sorted(newest)
            begun = max((group for group in groups if newest[group] < old_ms), default=0)
            before = None
            for group in groups[: len(groups) // 2 if full else len(groups)]:
                settled = all(each.settled(group, begun) for each in ledgers)
                if newest[group] >= old_ms or not settled:
                    break
                if not full and any(each.has_missing_in(group) for each in ledgers):
                    break
                before = group + 1
            if before is not None:
                for ledger in ledgers:
                    ledger.evict(before)
                state.evict(before)
