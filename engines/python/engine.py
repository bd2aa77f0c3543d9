"""A pipeline in plain Python with known delays and faults: `python engine.py PLAN`.

Publishes the expected outputs of the stages after a configured delay, with configured faults, to
compare the evaluator's report with known values. All stages run in one thread. Ends on SIGTERM or
with its parent.
"""

import heapq
import itertools
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from faults import (
    CORRUPT,
    DROP,
    DUPLICATE,
    FAULTS,
    LATE,
    NONE,
    Output,
    Outputs,
    falling_ms,
    fault_of,
    service_ms,
    slowness_ms,
)
from stages.lines import Progress, end_with_parent, say
from stages.plan import FaultyRecordError, Plan
from stages.reading import Reading

MAX_WAIT_S, MAX_WAIT_FOR_WINDOWS_S = 0.1, 0.01
MAX_BATCH = 10_000
MAX_AHEAD_MS = 50.0  # how long what was read may wait for the workers; the rest waits in Kafka
MAX_DUE = 1_000_000  # delayed outputs; reading pauses above this
FLUSH_TIMEOUT_S = 10.0
ACKNOWLEDGED_S = 0.001  # interval between checks for acknowledgements
# Send every record immediately. Nagle's algorithm would hold small requests back until the previous
# response arrives.
AT_ONCE: dict[str, Any] = {"socket.nagle.disable": True, "log_level": 3}


def main() -> int:
    """Run the pipeline until told to stop."""
    plan, stop = Plan(sys.argv[-1]), Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    end_with_parent()
    consumer, producer = open_inputs(plan), open_outputs(plan)
    outputs = Outputs(plan)
    delayed = Delayed(producer, plan.settings, outputs)

    say(event="ready", detail={})
    run(plan, consumer, delayed, outputs, stop=stop)

    producer.flush(FLUSH_TIMEOUT_S)
    consumer.close()
    return 0


def open_inputs(plan: Plan) -> Consumer:
    """A consumer of the input topics, positioned at the start offsets."""
    consumer = Consumer(
        {
            **plan.kafka,
            **AT_ONCE,
            "client.id": "tidegauge-calibration",
            "group.id": plan.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign([TopicPartition(*place) for place in plan.partitions])
    return consumer


def open_outputs(plan: Plan) -> Producer:
    """An idempotent producer, so without duplicates or reordering, with Java's partitioner."""
    return Producer(
        {
            **plan.kafka,
            **AT_ONCE,
            "client.id": f"tidegauge-{plan.settings['name']}",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "linger.ms": 0,
        }
    )


class Delayed:
    """A queue of delayed outputs, earliest first. settings: delays and faults of the pipeline."""

    def __init__(self, producer: Producer, settings: Mapping[str, Any], outputs: Outputs) -> None:
        self._producer, self._settings, self._outputs = producer, settings, outputs
        self._has_faults = any(settings[f"{fault}_one_in"] for fault in FAULTS)
        self._count = itertools.count()
        self._unacknowledged: Counter[str] = Counter()  # by topic
        self._first_ms: float | None = None
        self._due: list[tuple[float, int, str, bytes | None, bytes]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, output: Output, done_ms: float = 0.0) -> None:
        """Schedule one output, or what a fault turns it into. done_ms: when the record that implies
        it has been processed."""
        fault = fault_of(output.number, self._settings) if self._has_faults else NONE
        if fault == DROP:
            return
        delay_ms = self._settings["late_ms" if fault == LATE else "delay_ms"]
        delay_ms += slowness_ms(output.due_ms, self._settings)
        if output.number >= 0:
            self._first_ms = output.due_ms if self._first_ms is None else self._first_ms
            delay_ms += falling_ms(output.due_ms - self._first_ms, self._settings)
        value = self._outputs.corrupted(output) if fault == CORRUPT else output.value
        for _ in range(2 if fault == DUPLICATE else 1):
            place = (max(output.due_ms, done_ms) + delay_ms, next(self._count))
            heapq.heappush(self._due, (*place, output.topic, output.key, value))

    def publish(self, now_ms: float) -> None:
        """Publish due outputs in order, up to the first whose topic has unacknowledged ones. That
        one and later ones are sent in one batch after the acknowledgements.

        While a record waits behind five of its partition in flight, librdkafka's thread polls
        without pause, which would take CPU time from the broker.
        """
        self._producer.poll(0)
        waiting = {topic for topic, count in self._unacknowledged.items() if count}
        while self._due and self._due[0][0] <= now_ms and self._due[0][2] not in waiting:
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


class Workers:
    """The workers, which process one record after the other, each for service_ms."""

    def __init__(self, service_ms: float) -> None:
        self._service_ms = service_ms
        self._free_ms = 0.0

    def room(self, now_ms: float) -> int:
        """Number of records that may be read now."""
        if not self._service_ms:
            return MAX_BATCH
        ahead_ms = max(0.0, self._free_ms - now_ms)
        return min(MAX_BATCH, math.ceil((MAX_AHEAD_MS - ahead_ms) / self._service_ms))

    def done_ms(self, appended_ms: float) -> float:
        """When the next record has been processed, epoch ms; 0 if that takes no time. It is as if
        it had been read at its append, so that a pause of this program costs no capacity."""
        if not self._service_ms:
            return 0.0
        self._free_ms = max(self._free_ms, appended_ms) + self._service_ms
        return self._free_ms


def run(plan: Plan, consumer: Consumer, delayed: Delayed, outputs: Outputs, *, stop: Event) -> None:
    """Read, process and publish until `stop` is set. Raises KafkaException."""
    reading = Reading(plan.start_offsets)
    progress, workers = Progress(plan, reading), Workers(service_ms(plan.settings))
    most_s = MAX_WAIT_FOR_WINDOWS_S if plan.has_times else MAX_WAIT_S
    while not stop.is_set():
        for topic, number, _ in plan.partitions:
            place = TopicPartition(topic, number)
            reading.end(topic, number, consumer.get_watermark_offsets(place, cached=True)[1])
        progress.tell()
        now_ms = time.time() * 1000
        for output in outputs.tick(reading.reached_ms(now_ms)):
            delayed.add(output)
        delayed.publish(now_ms)
        wait_s = delayed.wait_s(now_ms)
        room = workers.room(now_ms)
        if len(delayed) > MAX_DUE or 0 < wait_s < 0.001 or room <= 0:
            time.sleep(min(wait_s, most_s))  # the client waits in whole milliseconds
            continue
        for message in read(consumer, min(wait_s, most_s), room):
            topic, appended_ms = message.topic(), message.timestamp()[1]
            at = message.partition(), message.offset()
            reading.read(topic, *at, appended_ms)
            done_ms = workers.done_ms(appended_ms)
            record = topic, message.key(), message.value(), appended_ms, at
            try:
                found = outputs.read(*record)
            except FaultyRecordError as error:  # as a program that is restarted with its state
                print(error, file=sys.stderr, flush=True)
                stop.wait(plan.settings["outage_ms"] / 1000)
                found = outputs.read(*record)
            for output in found:
                delayed.add(output, done_ms)


def read(consumer: Consumer, wait_s: float, most: int) -> Iterator[Message]:
    """The available messages, at most `most`; waits up to `wait_s` for the first."""
    first = consumer.poll(wait_s)
    if first is None:
        return
    for message in (first, *(consumer.consume(most - 1, 0) if most > 1 else ())):
        error = message.error()
        if error is None:
            yield message
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)


if __name__ == "__main__":
    sys.exit(main())
