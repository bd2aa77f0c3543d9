"""Publishes the counts of an evaluation, each exactly once, even if the process dies.

A process that takes over a run counts everything again from the run's first record. It publishes
the difference from what was published before (services/runtime/counting.py).

A run that measures its pipelines alternately has an `Evaluation` for each
(`InterleavedEvaluation`), since each pipeline has input topics of its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from confluent_kafka import Message
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas import catalogue, protocol
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.columnar.columns import LIMITS, Ints, StateLimits
from services.evaluator.columnar.decode import UndecodedRecord
from services.evaluator.pairing.counters import SocketTimes, pack_offsets, without
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from services.evaluator.run.reader import Frontier, TopicPartition, reached
from services.runtime.counting import COUNTED, CountReconciler, Fields
from services.runtime.events import (
    MAX_LETTERS,
    Events,
    Record,
    Spans,
    dead_letter_of,
    decoded,
    read_spans,
    spans_since,
)
from services.runtime.figure_metrics import FigureCounts, families
from services.runtime.kafka import assigned_consumer
from services.runtime.logs import get_log
from services.runtime.settings import ServiceSettings

CLOCKS_APART_MS = 60_000  # maximum clock difference of the brokers that lead the result topics
log = get_log()


class LiveFigures(Collector):
    """The figures of the run being evaluated as Prometheus metrics. Added to and read by different
    threads.

    Each run begins at 0, which Prometheus takes for a restart, so that the number of series stays
    that of one run.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._run_id, self._counts = "", FigureCounts()

    def begin(self, run_id: str) -> None:
        """Forget the figures of the run before."""
        with self._lock:
            self._run_id, self._counts = run_id, FigureCounts()

    def add(self, topic: str, fields: dict[str, Any]) -> None:
        """Add the fields of an event of a topic; those without such figures are ignored."""
        with self._lock:
            self._counts.add(topic, fields)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        run = GaugeMetricFamily(
            "tidegauge_run_info", "The run being evaluated, 1", labels=["run_id"]
        )
        with self._lock:
            if self._run_id:
                run.add_metric([self._run_id], 1)
            result = [run, *families({(): self._counts})]
        yield from result

    def describe(self) -> list[Metric]:
        """None: their labels are those of the run."""
        return []


class InterleavedEvaluation:
    """Several evaluations; a batch goes to the one that reads its topic."""

    def __init__(self, plan: RunPlan, phases: PhasePlan, limits: StateLimits = LIMITS) -> None:
        shares = [plan.model_copy(update={"request": each}) for each in plan.request.shares]
        self._parts = tuple(Evaluation(share, phases, len(shares), limits) for share in shares)
        self._of_topic = {topic: part for part in self._parts for topic in part.topics}
        self.run_id = plan.request.run_id
        self.inputs = plan.request.input_topics
        self.where = {topic: place for part in self._parts for topic, place in part.where.items()}

    def replan(self, phases: PhasePlan) -> None:
        for part in self._parts:
            part.replan(phases)

    def cells(self) -> int:
        return sum(part.cells() for part in self._parts)

    def add(self, batch: RecordBatch) -> list[UndecodedRecord]:
        if batch.topic == catalogue.FETCHES:
            return [each for part in self._parts for each in part.add(batch)]
        return self._of_topic[batch.topic].add(batch)

    def advance(self, input_frontier_ms: int, output_frontier_ms: int) -> None:
        for part in self._parts:
            part.advance(input_frontier_ms, output_frontier_ms)

    def add_aborted(self, aborted: Mapping[str, Mapping[int, int]]) -> None:
        for topic, seconds in aborted.items():
            self._of_topic[topic].add_aborted({topic: seconds})

    def open_in_measure(self) -> int:
        return sum(part.open_in_measure() for part in self._parts)

    @property
    def came_forgotten(self) -> int:
        return sum(part.came_forgotten for part in self._parts)

    @property
    def not_handed(self) -> int:
        return sum(part.not_handed for part in self._parts)

    def socket_latencies(self) -> Iterator[tuple[str, str, SocketTimes]]:
        for part in self._parts:
            yield from part.socket_latencies()

    def take_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for part in self._parts:
            yield from part.take_events()


AnyEvaluation = Evaluation | InterleavedEvaluation


def evaluation_of(plan: RunPlan, phases: PhasePlan, limits: StateLimits = LIMITS) -> AnyEvaluation:
    """Create the evaluation of a run."""
    if plan.request.interleaved is not None:
        return InterleavedEvaluation(plan, phases, limits)
    (request,) = plan.request.shares  # includes the topics that it reads
    return Evaluation(plan.model_copy(update={"request": request}), phases, limits=limits)


@dataclass
class Published:
    """What one evaluator has published of one run. counts: initialised with the published ones.
    dead_letters: topic, partition and offset of each.

    Events are not stored: their counts are added up, cell by cell. Pairs take 8 bytes each.
    """

    counts: CountReconciler = field(default_factory=CountReconciler)
    dead_letters: set[tuple[str, int, int]] = field(default_factory=set)
    _pairs: dict[tuple[str, str], list[Ints]] = field(default_factory=dict)

    def add(self, name: str, record: Record) -> None:
        """Add one event of schema `name`."""
        if name == "dead_letter":
            self.dead_letters.add((record["topic"], record["partition"], record["offset"]))
        elif name == catalogue.record_of(catalogue.PAIRS):
            where = (np.array(record[each], np.int64) for each in ("partitions", "offsets"))
            known = self._pairs.setdefault((record["pipeline"], record["stage"]), [])
            known.append(pack_offsets(*where))
        else:
            self.counts.deduct(name.replace("_", ".", 1), record)

    def pairs(self) -> dict[tuple[str, str], Ints]:
        """Sorted packed offsets of the outputs whose pairs were published, by pipeline and
        stage."""
        return {where: np.unique(np.concatenate(parts)) for where, parts in self._pairs.items()}


def read_published(
    settings: ServiceSettings, run_id: str, producer: str | None, since_ms: int
) -> Published:
    """What `producer` has published of a run prepared at `since_ms` (epoch ms); None for any
    producer."""
    wanted = (*COUNTED, catalogue.SLICES, catalogue.DEAD_LETTER, catalogue.PAIRS)
    consumer = assigned_consumer(settings, "evaluator-history", **{"fetch.min.bytes": 1})
    published = Published()
    try:
        spans: Spans = {}
        for topic in wanted:
            spans.update(spans_since(consumer, topic, since_ms - CLOCKS_APART_MS))
        for name, record in decoded(read_spans(consumer, spans)):
            if record["run_id"] == run_id and producer in (None, record["producer"]):
                published.add(name, record)
    finally:
        consumer.close()
    return published


class Publication:
    """Publishes the events of one run.

    A process that takes over a run passes what was published `already`, and the end offsets of all
    topics at that time (epoch ms). Until it has read up to these offsets, and knows that it has up
    to this time, it publishes no counts: the process before it may have given verdicts up to then.
    Then it publishes the difference between its own counts and those already published. live: gets
    what is published, too.
    """

    def __init__(
        self,
        events: Events,
        run_id: str,
        where: dict[str, tuple[str, str]],
        already: Published | None = None,
        ends: dict[TopicPartition, int] | None = None,
        *,
        ends_ms: int = 0,
        max_letters: int = MAX_LETTERS,
        live: LiveFigures | None = None,
    ) -> None:
        self._events = events
        self._live = live
        self._run_id = run_id
        self._counts = already.counts if already is not None else None
        self._letters = already.dead_letters if already is not None else set()
        letters = Counter(topic for topic, _, _ in self._letters)
        self._rooms = {topic: max_letters - letters[topic] for topic in where}
        self._pairs = already.pairs() if already is not None else {}
        self._ends, self._ends_ms = ends or {}, ends_ms
        self.totals: dict[str, dict[str, Counter[str]]] = {}
        self.missing: dict[str, Counter[str]] = {}  # of the whole load
        for pipeline, stage in where.values():
            self.missing.setdefault(pipeline, Counter())[stage] = 0
            none = dict.fromkeys(protocol.VERDICTS, 0)
            self.totals.setdefault(pipeline, {})[stage] = Counter(none)

    @property
    def is_behind(self) -> bool:
        """Whether this process has not yet counted everything that the previous one may have
        published."""
        return self._counts is not None

    def publish(self, evaluation: AnyEvaluation, frontier: Frontier | None = None) -> None:
        """Publish new events, given how far the topics have been read, which matters to a process
        that has taken over the run. Raises NotRepeatableError."""
        for topic, fields in evaluation.take_events():
            if topic == catalogue.PAIRS:
                self._publish_pairs(fields)
                continue
            if topic == catalogue.VERDICTS:
                self.missing[fields["pipeline"]][fields["stage"]] += fields["missing"]
            if topic == catalogue.VERDICTS and fields["phase"] == "measure":
                counts = {verdict: fields[verdict] for verdict in protocol.VERDICTS}
                self.totals[fields["pipeline"]][fields["stage"]].update(counts)
            if self._counts is None:
                self._publish(topic, fields)
            else:
                self._counts.count(topic, fields)
        if self._counts is not None and frontier is not None and self._has_caught_up(frontier):
            for topic, fields in self._counts.events():
                self._publish(topic, fields)
            self._counts = None
            log.info("caught_up", run_id=self._run_id)

    def _publish(self, topic: str, fields: Fields) -> None:
        self._events.publish_figures(topic, self._run_id, **fields)
        if self._live is not None:
            self._live.add(topic, fields)

    def _has_caught_up(self, frontier: Frontier) -> bool:
        read_ms = min(frontier.input_ms, frontier.output_ms)
        return read_ms >= self._ends_ms and reached(frontier.positions, self._ends)

    def _publish_pairs(self, fields: Fields) -> None:
        """Publish pairs at once: they are independent of the counts."""
        known = self._pairs.get((fields["pipeline"], fields["stage"]))
        left = fields if known is None else without(fields, known)
        if left is not None:
            self._events.publish_figures(catalogue.PAIRS, self._run_id, **left)

    def dead_letter(self, message: Message, reason: str) -> None:
        """Write a dead letter for an undecodable record, unless one was written before, or
        as many as are kept for its output topic. The reason of the last says so."""
        topic = message.topic()
        if (topic, message.partition(), message.offset()) in self._letters:
            return
        if topic in self._rooms:
            self._rooms[topic] -= 1
            if self._rooms[topic] < 0:
                return
            if self._rooms[topic] == 0:
                reason = f"no further ones of this topic are kept; {reason}"
                log.warning("dead_letters_end", run_id=self._run_id, topic=topic)
        self._events.dead_letter(dead_letter_of(message, reason), self._run_id)
