"""Bytewax: `python engine.py PLAN`. Builds a dataflow from the plan's stages.

    KafkaSource -> flat_map decode -> (event time) -> per stage: flat_map, or key_on and
    stateful_batch -> flat_map encode -> KafkaSink per output

The kinds of stages are computed by engines/python/stages. Bytewax stores their state by key and
wakes windows that are due (`notify_at`). It snapshots state and offsets to its recovery store in
the plan's folder, from which a killed program resumes.
"""

import pickle
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cli_main
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from confluent_kafka import TopicPartition
from stages.closing import Closed
from stages.event_time import EventTime
from stages.kinds import Kept, Keyed, Spec
from stages.lines import Progress, end_with_parent, say
from stages.plan import Plan
from stages.reading import Reading
from stages.records import Row

IDLE_S, LOOK_S = 300, 0.02
VERSION = "0.21.1"


class Partition(StatefulSourcePartition[KafkaSourceMessage, int]):
    """A partition read by KafkaSource, with its read position."""

    def __init__(self, source: "Source", inner: Any, topic: str, number: int) -> None:
        self._source, self._inner = source, inner
        self._topic, self._number, self._looked_s = topic, number, 0.0

    def next_batch(self) -> list[KafkaSourceMessage]:
        found = self._inner.next_batch()
        reading = self._source.reading
        if found:
            last = found[-1]
            reading.read(self._topic, self._number, last.offset, last.timestamp[1], len(found))
        if time.monotonic() - self._looked_s >= LOOK_S:
            at = TopicPartition(self._topic, self._number)
            end = self._inner._consumer.get_watermark_offsets(at, cached=True)[1]
            reading.end(self._topic, self._number, end)
            self._source.reads(self)
            self._looked_s = time.monotonic()
        return found

    def snapshot(self) -> int:
        return self._inner.snapshot()

    def close(self) -> None:
        self._inner.close()


class Source(KafkaSource):
    """KafkaSource that starts at the plan's offsets unless it resumes, and reports its progress."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        super().__init__(
            [plan.bootstrap],
            list(plan.start_offsets),
            add_config={**plan.kafka, "group.id": plan.group},
            batch_size=plan.settings["batch_size"],
        )
        self._plan, self.reading = plan, reading
        self._progress = Progress(plan, reading)
        self._awaited = {place[:2] for place in plan.partitions}

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Partition:
        text, topic = for_part.split("-", 1)
        number = int(text)
        if resume_state is None:
            resume_state = self._plan.start_offsets[topic][number]
        self.reading.begin(topic, number, resume_state)
        inner = super().build_part(step_id, for_part, resume_state)
        return Partition(self, inner, topic, number)

    def reads(self, partition: Partition) -> None:
        """Mark a partition as being read; when all are, the program is ready."""
        if self._awaited:
            self._awaited.discard((partition._topic, partition._number))
            if not self._awaited:
                say(event="ready", detail={"bytewax": VERSION, "workers": 1})
        self._progress.tell()


class EventTimes(StatefulBatchLogic[Row, Row, bytes]):
    """Passes rows through and stores the event time of the plan."""

    def __init__(self, times: EventTime, state: bytes | None) -> None:
        self._times = times
        if state is not None:
            times.merge(pickle.loads(state))

    def on_batch(self, values: list[Row]) -> tuple[Iterable[Row], bool]:
        return values, StatefulBatchLogic.RETAIN

    def snapshot(self) -> bytes:
        return pickle.dumps(self._times)


class Key(StatefulBatchLogic[Row, Row, bytes]):
    """The state of one key of a stage. It is dropped when the key has had no rows for IDLE_S and
    the length of a window, or has no window to close."""

    def __init__(self, kind: Keyed, reading: Reading, state: bytes | None) -> None:
        self._kind, self._reading = kind, reading
        self._kept = Kept() if state is None else pickle.loads(state)
        self._idle_s = IDLE_S + kind.size_ms / 1000
        self._touched_s = time.time()
        self._due_s: float | None = None
        self._plan_look()

    def on_batch(self, values: list[Row]) -> tuple[Iterable[Row], bool]:
        found = [row for one in values for row in self._kind.add(self._kept, one)]
        self._touched_s = time.time()
        if self._due_s is None:
            self._plan_look()
        return found, StatefulBatchLogic.RETAIN

    def on_notify(self) -> tuple[Iterable[Row], bool]:
        now_s = time.time()
        if not isinstance(self._kind, Closed):
            self._plan_look()
            return (), now_s - self._touched_s >= self._idle_s
        found = self._kind.due(self._kept, self._reading.reached_ms(1000 * now_s))
        self._plan_look()
        return found, not self._kept

    def _plan_look(self) -> None:
        if not isinstance(self._kind, Closed):
            self._due_s = self._touched_s + self._idle_s
            return
        now_ms = 1000 * time.time()
        due_ms = self._kind.due_ms(self._kept, now_ms)
        self._due_s = None if due_ms is None else max(due_ms, now_ms + 1000 * LOOK_S) / 1000

    def notify_at(self) -> datetime | None:
        return None if self._due_s is None else datetime.fromtimestamp(self._due_s, UTC)

    def snapshot(self) -> bytes:
        return pickle.dumps(self._kept)


class Flow:
    """The dataflow of a plan."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        self.plan, self.reading = plan, reading
        self.dataflow = Dataflow("tidegauge")
        self.kinds = {spec["name"]: plan.kind_of(spec) for spec in plan.stages}
        messages = op.input("inputs", self.dataflow, Source(plan, reading))
        self._copy(messages)
        self._streams = {one["name"]: self._input(one["name"], messages) for one in self._inputs()}
        for spec in plan.stages:
            rows = self._streams[spec["name"]] = self._stage(spec)
            if plan.is_published(spec):
                self._publish(spec, rows)

    def _inputs(self) -> list[Spec]:
        return self.plan.domain["inputs"]

    def _copy(self, messages: Stream) -> None:
        copies = {topic: self.plan.copies_of(topic) for topic in self.plan.inputs}
        for output in dict.fromkeys(one for found in copies.values() for one in found):

            def copied(message: Any, output: str = output) -> Any:
                if output in copies[message.topic] and message.value is not None:
                    return KafkaSinkMessage(message.key, message.value)
                return None

            copies_of_output = op.filter_map(f"{step(output)}-copy", messages, copied)
            self._write(output, copies_of_output)

    def _input(self, name: str, messages: Stream) -> Stream:
        """The rows of one input, or of all; each input is decoded once."""
        if not hasattr(self, "_rows"):
            self._rows = self._decoded(messages)
        if len(self._inputs()) == 1:
            return self._rows
        return op.filter(f"{name}-rows", self._rows, lambda row: row.source == name)

    def _decoded(self, messages: Stream) -> Stream:
        plan = self.plan

        def decode(message: Any) -> Row | None:
            place = (message.partition, message.offset)
            return plan.row_of(message.topic, message.value, message.timestamp[1], place)

        rows = op.filter_map("decode", messages, decode)
        if not plan.has_times:
            return rows
        keyed = op.key_on("event-time-key", rows, lambda _: "all")
        passed = op.stateful_batch("event-time", keyed, lambda state: EventTimes(plan.times, state))
        return op.key_rm("event-time-rows", passed)

    def _stage(self, spec: Spec) -> Stream:
        name, kind = spec["name"], self.kinds[spec["name"]]
        reads_all = {one["name"] for one in self._inputs()} <= set(spec["reads"])
        before = [self._streams[one] for one in spec["reads"]]
        rows = self._rows if reads_all else op.merge(f"{name}-reads", *before)
        if spec["kind"] in ("copy", "decode"):
            return rows
        if not isinstance(kind, Keyed):
            return op.flat_map(name, rows, kind.add)
        taken = op.filter(f"{name}-taken", rows, kind.takes)
        keyed = op.key_on(f"{name}-key", taken, kind.key_of)
        made = op.stateful_batch(name, keyed, lambda state: Key(kind, self.reading, state))
        return op.key_rm(f"{name}-rows", made)

    def _publish(self, spec: Spec, rows: Stream) -> None:
        def encode(row: Row) -> Any:
            _, key, value = self.plan.message_of(spec, row)
            return KafkaSinkMessage(key.encode(), value)

        self._write(self.plan.outputs[spec["name"]], op.map(f"{spec['name']}-encode", rows, encode))

    def _write(self, topic: str, messages: Stream) -> None:
        # Use the partitioner of Java clients.
        settings = {
            "linger.ms": self.plan.settings["linger_ms"],
            "compression.type": self.plan.settings["compression"],
            "partitioner": "murmur2_random",
        }
        sink = KafkaSink([self.plan.bootstrap], topic, {**self.plan.kafka, **settings})
        op.output(f"{step(topic)}-out", messages, sink)


def step(topic: str) -> str:
    """A topic as a step name, in which periods are not allowed."""
    return topic.replace(".", "-")


def main() -> None:
    plan = Plan(sys.argv[-1])
    end_with_parent()
    store = Path(plan.folder) / "recovery"
    if not store.is_dir():
        store.mkdir(parents=True)
        init_db_dir(store, 1)
    cli_main(
        Flow(plan, Reading(plan.start_offsets)).dataflow,
        epoch_interval=timedelta(milliseconds=plan.settings["snapshot_interval_ms"]),
        recovery_config=RecoveryConfig(store),
    )


if __name__ == "__main__":
    main()
