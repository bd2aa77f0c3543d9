"""The evaluation of one run: batches of topics in, events for the bus out. Pure: no Kafka, no
clock; the frontiers say how far the topics have been read.

    evaluation = Evaluation(plan, phases)
    refused = evaluation.add(batch)                    # of any of `evaluation.topics`
    evaluation.advance(input_frontier_ms, output_frontier_ms)
    for topic, fields in evaluation.take_events(): ...
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schemas import catalogue
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.append_order import AppendOrder
from services.evaluator.columns import Ints
from services.evaluator.decode import Decoded, Refused, decode
from services.evaluator.faults import RawCopies, Repeats
from services.evaluator.formats import input_decoder
from services.evaluator.inputs import FLOW, SPEED, Inputs
from services.evaluator.ledger import Ledger
from services.evaluator.outputs import Keys, judged_keys
from services.evaluator.partial_windows import rules
from services.evaluator.rows import OUTPUT_ROWS, digests, input_rows
from services.evaluator.tallies import Throughput

MAX_CELLS = 12_000_000  # about 1 GB of pairing state
KEEP_S = 900  # longer than a real-time batch, so that what a restart repeats is recognised

_KIND = {catalogue.FLOW: FLOW, catalogue.SPEED: SPEED}
INPUT_RECORDS = {catalogue.FLOW: ("traffic_flow",), catalogue.SPEED: ("traffic_speed",)}


@dataclass(frozen=True)
class Batch:
    """Records of one topic, those of a partition in order: appended_ms (LogAppendTime) and values.

    Of outputs also keys; partitions, where the topic has several; places (`pair_log.places`), where
    single pairs are wanted.
    """

    topic: str
    appended_ms: Ints
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    partitions: Ints | None = None
    places: Ints | None = None


class Evaluation:
    """Pairs and judges all pipelines and stages of one run."""

    def __init__(self, plan: RunPlan, phases: PhasePlan) -> None:
        request, workload = plan.request, plan.request.workload
        self.run_id = request.run_id
        self._decode = input_decoder(workload.content.format)
        self._deadline_ms = workload.judgement.deadline_ms
        self._raw_copies = RawCopies()
        repeats = Repeats(workload.faults, request.seed) if workload.faults.duplicate else None
        self.ledgers: dict[str, Ledger] = {}
        self.where: dict[str, tuple[str, str]] = {}
        for pipeline in request.pipelines:
            for stage in (stage for stage in pipeline.stages if stage in request.stages):
                topic = catalogue.output_topic(pipeline.name, stage)
                kept = pipeline.incomplete_windows
                self.ledgers[topic] = Ledger(
                    rules(kept, workload.windows)[stage],
                    workload.judgement,
                    phases,
                    repeats=repeats if stage in ("ingest", "parse") else None,
                )
                self.where[topic] = (pipeline.name, stage)
        memories = {ledger.stage.memory for ledger in self.ledgers.values()}
        windowed = [one for one in self.ledgers.values() if one.stage.memory == "windows"]
        self.inputs = Inputs(
            memories,
            1000 * workload.windows.tumbling_s,
            base_ms=phases.load_start_ms,
        )
        self._append_order = AppendOrder(self.inputs, windowed)
        self._has_windows = bool(windowed)
        self._compares_bytes = any(one.stage.name == "ingest" for one in self.ledgers.values())
        self.topics = (*catalogue.INPUTS, *self.ledgers)
        self._throughput = {topic: Throughput() for topic in self.topics}

    def add(self, batch: Batch) -> list[Refused]:
        """Take in records of one topic; returns those that cannot be decoded."""
        if batch.topic in _KIND:
            decoded, refused = self._decode(INPUT_RECORDS[batch.topic], batch.values)
            for rows in decoded:
                self._add_input(batch, rows.of_run(self.run_id))
            for one in refused if self._compares_bytes else ():
                self._raw_copies.add_input(
                    batch.values[one.place], int(batch.appended_ms[one.place])
                )
        else:
            refused = self._add_outputs(batch)
        return refused

    def _add_outputs(self, batch: Batch) -> list[Refused]:
        stage = self.where[batch.topic][1]
        read = self._decode if stage == "ingest" else decode
        decoded, refused = read(catalogue.STAGE_RECORDS[stage], batch.values)
        for rows in decoded:
            self._take_outputs(batch, stage, rows.of_run(self.run_id))
        lost = np.array([one.place for one in refused], np.int64)
        if stage != "ingest":
            self.ledgers[batch.topic].refuse(batch.appended_ms[lost])
        else:
            for place in lost.tolist():
                appended_ms = int(batch.appended_ms[place])
                self._raw_copies.add_output(batch.topic, batch.values[place], appended_ms)
        return refused

    def advance(self, input_frontier_ms: int, output_frontier_ms: int) -> None:
        """Give the verdicts that only time can give. All records of input (output) topics that
        were appended before the frontier have been added."""
        both_ms = min(input_frontier_ms, output_frontier_ms)
        for time_ms in self._append_order.steps(both_ms):
            self._retry()
            for ledger in self.ledgers.values():
                ledger.release(self.inputs, time_ms)
        for ledger in self.ledgers.values():
            ledger.settle(self.inputs, both_ms)
            ledger.sweep(self.inputs, both_ms)
        for topic, appended_ms in self._raw_copies.unexpected(both_ms, self._deadline_ms):
            self.ledgers[topic].refuse(np.array([appended_ms], np.int64))
        self._evict(both_ms)

    def open_in_measure(self) -> int:
        """Expected outputs of the measure phase without a verdict, and what waits."""
        self._retry()
        waiting = len(self._raw_copies) + len(self._append_order)
        return waiting + sum(
            ledger.open_in_measure(self.inputs) + ledger.waiting for ledger in self.ledgers.values()
        )

    @property
    def came_forgotten(self) -> int:
        """Outputs of the measure phase that came when what they answer was forgotten, for want of
        memory: they count as missing and as duplicate, and their latency is not known."""
        return sum(ledger.came_forgotten for ledger in self.ledgers.values())

    def take_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Topic and fields of every event that is due since the last call."""
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
            for fields in ledger.pairs.take_events():
                yield catalogue.PAIRS, head | fields

    def _add_input(self, batch: Batch, decoded: Decoded) -> None:
        appended_ms = self._count(batch, decoded)
        digest = self._digests(batch, decoded) if self._compares_bytes else appended_ms
        rows = input_rows(_KIND[batch.topic], decoded, appended_ms, digest, self.inputs)
        self.inputs.add(rows)
        if self._has_windows and len(rows):
            self._append_order.add(rows)

    def _retry(self) -> None:
        """Judge outputs that came before their inputs and wait for those that have come since."""
        touched = self.inputs.take_touched()
        if any(touched.values()):
            for ledger in self.ledgers.values():
                ledger.retry(self.inputs, touched)

    def _take_outputs(self, batch: Batch, stage: str, decoded: Decoded) -> None:
        appended_ms = self._count(batch, decoded)
        # Only ingest compares whole values; the other stages compare columns.
        digest = self._digests(batch, decoded) if stage == "ingest" else appended_ms
        rows = OUTPUT_ROWS[stage](decoded, appended_ms, digest, self.inputs)
        rows = replace(
            rows,
            places=None if batch.places is None else batch.places[decoded.places],
            keys=self._keys(batch, decoded),
        )
        none = np.zeros(len(rows), np.int64)
        partitions = none if batch.partitions is None else batch.partitions[decoded.places]
        self.ledgers[batch.topic].add(rows, partitions)

    def _count(self, batch: Batch, decoded: Decoded) -> Ints:
        appended_ms = batch.appended_ms[decoded.places]
        self._throughput[batch.topic].add(appended_ms, decoded.sizes)
        return appended_ms

    @staticmethod
    def _keys(batch: Batch, decoded: Decoded) -> Keys | None:
        assert batch.keys is not None
        keys = batch.keys
        if len(decoded) < len(keys):
            keys = [keys[place] for place in decoded.places]
        return judged_keys(keys, decoded.columns.column("measurement_id"))

    @staticmethod
    def _digests(batch: Batch, decoded: Decoded) -> Ints:
        return digests([batch.values[place] or b"" for place in decoded.places])

    def _evict(self, now_ms: int) -> None:
        """Forget the oldest groups that are settled: those older than KEEP_S that lack nothing, and
        when the state grows past MAX_CELLS any, up to the older half. What a window is still to get
        parts for is not settled."""
        full = self.inputs.rows() > MAX_CELLS
        old_ms = now_ms if full else now_ms - KEEP_S * 1000
        for memory, newest in self.inputs.newest_ms.items():
            ledgers = [one for one in self.ledgers.values() if one.stage.memory == memory]
            groups = sorted(newest)
            begun = max((group for group in groups if newest[group] < old_ms), default=0)
            before = None
            for group in groups[: len(groups) // 2 if full else len(groups)]:
                settled = all(one.settled(self.inputs, group, begun) for one in ledgers)
                if newest[group] >= old_ms or not settled:
                    break
                if not full and any(one.lacks(group) for one in ledgers):
                    break
                before = group + 1
            if before is not None:
                for ledger in ledgers:
                    ledger.evict(self.inputs, before)
                self.inputs.evict(memory, before)
