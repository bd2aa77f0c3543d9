"""A pipeline in plain Python: `python -m services.calibration_pipeline PLAN`.

Publishes the expected outputs of the stages after a configured delay, with configured faults, to
compare the evaluator's report with known values. All stages run in one thread. Ends on SIGTERM or
with its parent.
"""

import heapq
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.engine import EnginePlan
from services.calibration_pipeline.faults import (
    CORRUPT,
    DROP,
    DUPLICATE,
    LATE,
    falling_ms,
    fault_of,
    slowness_ms,
)
from services.calibration_pipeline.progress import Progress, Reading
from services.calibration_pipeline.stages import Made, Stages
from services.runtime.program import Voice, end_with_parent, read_plan
from services.runtime.stopping import stop_on_signals

MAX_WAIT_S, MAX_WAIT_FOR_WINDOWS_S = 0.1, 0.01
MAX_BATCH = 10_000
MAX_DUE = 1_000_000  # delayed outputs; reading pauses above this
FLUSH_TIMEOUT_S = 10.0
ACKNOWLEDGED_S = 0.001  # interval between checks for acknowledgements
# Send every record immediately. Nagle's algorithm would hold small requests back until the previous
# response arrives.
AT_ONCE: dict[str, Any] = {"socket.nagle.disable": True, "log_level": 3}


def main() -> int:
    """Run the pipeline until told to stop."""
    plan, voice = read_plan(), Voice()
    end_with_parent()
    stop = stop_on_signals()
    consumer, producer = open_inputs(plan), open_outputs(plan)
    stages = Stages(plan.domain, tuple(plan.outputs), plan.wire_format, plan.deadline_ms)
    delayed = Delayed(producer, plan.outputs, plan.pipeline.settings, stages)

    voice.ready()
    reading = Reading(consumer, plan.start_offsets)
    run(consumer, delayed, stages, reading, Progress(plan, voice, consumer), stop=stop)

    producer.flush(FLUSH_TIMEOUT_S)
    consumer.close()
    return 0


def open_inputs(plan: EnginePlan) -> Consumer:
    """A consumer of the input topics, positioned at the start offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": plan.bootstrap,
            **plan.properties,
            **AT_ONCE,
            "client.id": "tidegauge-calibration",
            "group.id": "tidegauge-calibration",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign(
        [
            TopicPartition(topic, partition, offset)
            for topic, offsets in plan.start_offsets.items()
            for partition, offset in enumerate(offsets)
        ]
    )
    return consumer


def open_outputs(plan: EnginePlan) -> Producer:
    """An idempotent producer, so without duplicates or reordering, with Java's partitioner."""
    return Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            **plan.properties,
            **AT_ONCE,
            "client.id": f"tidegauge-{plan.pipeline.name}",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "linger.ms": 0,
        }
    )


class Delayed:
    """A queue of delayed outputs, earliest first.

    outputs: topics by stage; settings: delays and faults of the pipeline.
    """

    def __init__(
        self,
        producer: Producer,
        outputs: Mapping[str, str],
        settings: Mapping[str, Any],
        stages: Stages,
    ) -> None:
        self._producer, self._outputs = producer, outputs
        self._settings, self._stages = settings, stages
        self._count = itertools.count()
        self._unacknowledged: Counter[str] = Counter()  # by topic
        self._first_ms: float | None = None
        self._due: list[tuple[float, int, str, bytes | None, bytes]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, made: Made) -> None:
        """Schedule one output, or what a fault turns it into."""
        fault = fault_of(made.number, self._settings)
        if fault == DROP:
            return
        delay_ms = self._settings["late_ms" if fault == LATE else "delay_ms"]
        delay_ms += slowness_ms(made.due_ms, self._settings)
        if made.number >= 0:
            self._first_ms = made.due_ms if self._first_ms is None else self._first_ms
            delay_ms += falling_ms(made.due_ms - self._first_ms, self._settings)
        value = self._stages.spoilt(made) if fault == CORRUPT else made.value
        topic = self._outputs[made.stage]
        for _ in range(2 if fault == DUPLICATE else 1):
            place = (made.due_ms + delay_ms, next(self._count))
            heapq.heappush(self._due, (*place, topic, made.key, value))

    def publish(self, now_ms: float) -> None:
        """Publish due outputs in order, up to the first whose topic has unacknowledged ones. That
        one and later ones are sent in one batch after the acknowledgements.

        While a record waits behind five of its partition in flight, librdkafka's thread polls
        without pause, which would take CPU time from the broker.
        """
        self._producer.poll(0)
        free = {topic for topic in self._outputs.values() if not self._unacknowledged[topic]}
        while self._due and self._due[0][0] <= now_ms and self._due[0][2] in free:
            _due_ms, _number, topic, key, value = heapq.heappop(self._due)
            self._unacknowledged[topic] += 1
            while True:
                try:
                    self._producer.produce(topic, value, key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.05)

    def _delivered(self, _error: KafkaError | None, message: Message) -> None:
        self._unacknowledged[message.topic()] -= 1

    def wait_s(self, now_ms: float) -> float:
        """Seconds until the next output is due, at most MAX_WAIT_S. ACKNOWLEDGED_S if a due output
        waits for acknowledgements."""
        if not self._due:
            return MAX_WAIT_S
        if self._due[0][0] <= now_ms:
            return ACKNOWLEDGED_S
        return min(MAX_WAIT_S, max(0.0, (self._due[0][0] - now_ms) / 1000))


def run(
    consumer: Consumer,
    delayed: Delayed,
    stages: Stages,
    reading: Reading,
    progress: Progress,
    *,
    stop: Event,
) -> None:
    """Read, process and publish until `stop` is set. Raises KafkaException."""
    while not stop.is_set():
        progress.say()
        now_ms = time.time() * 1000
        if stages.closes_windows:
            for made in stages.closed(reading.reached_ms(now_ms)):
                delayed.add(made)
        delayed.publish(now_ms)
        wait_s = delayed.wait_s(now_ms)
        if len(delayed) > MAX_DUE or 0 < wait_s < 0.001:
            time.sleep(wait_s)  # the client waits in whole milliseconds
            continue
        for message in read(
            consumer, min(wait_s, MAX_WAIT_FOR_WINDOWS_S if stages.closes_windows else MAX_WAIT_S)
        ):
            _kind, appended_ms = message.timestamp()
            progress.count(message.topic())
            reading.read(message)
            for made in stages.outputs(
                message.topic(), message.key(), message.value(), appended_ms
            ):
                delayed.add(made)


def read(consumer: Consumer, wait_s: float) -> Iterator[Message]:
    """The available messages; waits up to `wait_s` for the first."""
    first = consumer.poll(wait_s)
    if first is None:
        return
    for message in (first, *consumer.consume(MAX_BATCH, 0)):
        error = message.error()
        if error is None:
            yield message
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)


if __name__ == "__main__":
    sys.exit(main())
