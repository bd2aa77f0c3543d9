"""The Kafka client of a load: accepts batches and reports the outcome of every record.

`BatchProducer` passes whole batches to librdkafka; `FrameBackend` sends frames to the gateway.

Frames go over the network by TCP, UDP or ZeroMQ (schemas/frame.py). Sending never waits for the
receiver. Frames beyond a small buffer that a socket does not accept stay due, so a slow receiver
shows up as send delay, or with UDP as loss. A record is acknowledged when the end offset of its
topic has advanced past it. Records that do not arrive in time have failed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from confluent_kafka import KafkaException, TopicPartition

from schemas.frame import END, HELLO, Frame, encode
from services.generator import librdkafka
from services.generator.batch_producer import PARTITIONS_IN_FLIGHT, BatchProducer, PartitionQueues
from services.generator.links import AT_ONCE, open_link
from services.generator.message_batch import MessageBatch
from services.generator.settings import GeneratorSettings
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    assigned_consumer,
    client_properties,
    frame_tag,
    partition_ids,
    watermarks,
)

CROWDED_RATE_PER_SECOND = 20_000
CROWDED_LINGER_MS = 2.0
BATCH_RECORDS = 2_000  # a fraction of the limit in flight, so that batches overlap
# second of the load (-1: none), acknowledged, failed
Delivered = Callable[[int, int, int], None]
POLL_S = 0.1
UDP_QUIET_S = 2.0  # datagrams that have not arrived by then are lost


class ProducerBackend(Protocol):
    """Sends batches in order and reports the outcome of each record.

    last_error: the client's last error; empty if there was none.
    """

    @property
    def last_error(self) -> str:
        """See above."""

    def count_into(self, delivered: Delivered) -> None:
        """Report outcomes to this function from now on, from one thread at a time."""

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """Send messages `start` to `stop` (exclusive) of a batch. Returns the position of the first
        message that was not accepted: `stop`, or less if the queue is full. With start = stop it
        only prepares for such batches. Raises ClientError if the client cannot continue."""

    def count_outcomes(self) -> None:
        """Count outcomes known by now, unless a thread does. Called when no record is due."""

    def flush(self, timeout_s: float) -> int:
        """Wait until no record is in flight; returns the number of those that still are."""

    def purge(self) -> None:
        """Fail the records in flight."""

    def close(self) -> None:
        """Close the client; records in flight are lost."""


def linger_ms(rate_per_second: float, configured: float | None) -> float:
    """How long the client waits to fill a batch: 0 below CROWDED_RATE_PER_SECOND."""
    if configured is not None:
        return configured
    return CROWDED_LINGER_MS if rate_per_second >= CROWDED_RATE_PER_SECOND else 0.0


def load_properties(settings: GeneratorSettings, rate_per_second: float) -> dict[str, Any]:
    """Properties of a load's producer.

    `murmur2_random` assigns a key to the same partition number in both input topics, as Java
    clients do.
    """
    return {
        "batch.num.messages": BATCH_RECORDS,
        **client_properties(settings, "generator-load"),
        "enable.idempotence": settings.generator_acks == "all",
        "acks": settings.generator_acks,
        "compression.type": "lz4",
        "linger.ms": linger_ms(rate_per_second, settings.generator_linger_ms),
        "partitioner": "murmur2_random",
        "socket.nagle.disable": True,
        "queue.buffering.max.messages": settings.generator_queue_records,
        "queue.buffering.max.kbytes": 1_048_576,
        "message.timeout.ms": settings.generator_delivery_timeout_s * 1000,
        "reconnect.backoff.max.ms": 1000,
    }


def _cluster(settings: GeneratorSettings, topics: Sequence[str]) -> tuple[dict[str, int], int]:
    """Number of partitions of the input topics, and number of brokers. Raises
    KafkaUnavailableError."""
    consumer = assigned_consumer(settings, "generator-partitions")
    try:
        partitions = {topic: len(partition_ids(consumer, topic)) for topic in topics}
        return partitions, len(consumer.list_topics(timeout=KAFKA_TIMEOUT_S).brokers)
    finally:
        consumer.close()


def open_backend(
    settings: GeneratorSettings, topics: Sequence[str], rate_per_second: float, in_order: bool
) -> ProducerBackend:
    """A backend that sends one load directly to Kafka at `rate_per_second`. in_order: the seconds
    of its batches never decrease; false if records are late on purpose. Raises ClientError."""
    properties = load_properties(settings, rate_per_second)
    library = librdkafka.load()
    partitions, brokers = _cluster(settings, topics)
    # Without idempotence librdkafka allows enough requests in flight.
    bound = PARTITIONS_IN_FLIGHT * brokers if properties["enable.idempotence"] else None
    queues = PartitionQueues(bound, BATCH_RECORDS, settings.generator_delivery_timeout_s)
    return BatchProducer(library, properties, partitions, queues, in_order)


class FrameBackend:
    """A ProducerBackend that sends records through a gateway.

    run_id: of the load. stream: index of this generator among several.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        topics: Sequence[str],
        transport: str,
        run_id: str,
        stream: int,
    ) -> None:
        self._tag, self._stream = frame_tag(settings, run_id), stream
        hello = encode(Frame(self._tag, stream, HELLO, 0, time.time_ns()))
        self._link = open_link(transport, settings.gateway_address, hello, self._tag)
        is_udp = transport == "udp"
        self._patience_s = UDP_QUIET_S if is_udp else settings.generator_delivery_timeout_s
        self._numbers = {topic: number for number, topic in enumerate(topics)}
        self._sequence = 0
        self._delivered: Callable[[int, int, int], None] = lambda *_: None
        # Unacknowledged records: [second, count] in the order of sending.
        self._under_way: deque[list[int]] = deque()
        self._lock = threading.Lock()
        self._link_lock = threading.Lock()
        self._grown_s = time.monotonic()
        self._is_ended = False
        self._consumer = assigned_consumer(settings, "generator-gateway")
        self._places = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in partition_ids(self._consumer, topic)
        ]
        self._known = self._ends()
        self._appended = 0  # records seen in the topics before they were registered as sent
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="deliveries", daemon=True)
        self._thread.start()

    @property
    def last_error(self) -> str:
        return self._link.last_error

    def count_into(self, delivered: Callable[[int, int, int], None]) -> None:
        """See ProducerBackend. Probe traffic has ended; everything from now on is the load."""
        with self._lock:
            self._known, self._appended = self._ends(), 0
            self._delivered = delivered

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        number = self._numbers[batch.topic]
        position = start
        with self._link_lock:
            while position < stop:
                key, value = batch.record(position)
                frame = Frame(
                    self._tag, self._stream, number, self._sequence, time.time_ns(), key, value
                )
                if not self._link.send(encode(frame)):
                    break
                self._sequence += 1
                position += 1
                if (position - start) % AT_ONCE == 0:
                    self._link.flush()
            self._link.flush()
        self._note(batch.seconds[start:position])
        return position

    def _note(self, seconds: "np.ndarray[Any, np.dtype[np.int32]]") -> None:
        if not len(seconds):
            return
        bounds = np.flatnonzero(np.diff(seconds)) + 1
        with self._lock:
            if not self._under_way:
                self._grown_s = time.monotonic()
            for part in np.split(seconds, bounds):
                self._under_way.append([int(part[0]), len(part)])

    def _ends(self) -> int:
        return sum(watermarks(self._consumer, place)[1] for place in self._places)

    def _watch(self) -> None:
        while not self._closed.wait(POLL_S):
            with self._link_lock:
                self._link.flush()  # what is left must not wait for the next record
            try:
                ends = self._ends()
            except (KafkaException, KafkaUnavailableError):
                continue  # the broker is unavailable; other parts report that
            with self._lock:
                if ends > self._known:
                    self._grown_s = time.monotonic()
                self._appended += ends - self._known
                self._known = ends
                self._appended -= self._settle(self._appended, acknowledged=True)

    def _settle(self, records: int, *, acknowledged: bool) -> int:
        """Mark the oldest records as acknowledged or failed; returns how many."""
        left = records
        while left > 0 and self._under_way:
            oldest = self._under_way[0]
            count = min(left, oldest[1])
            self._delivered(oldest[0], count * acknowledged, count * (not acknowledged))
            oldest[1] -= count
            left -= count
            if not oldest[1]:
                self._under_way.popleft()
        return records - left

    def count_outcomes(self) -> None:
        """See ProducerBackend."""

    def flush(self, timeout_s: float) -> int:
        """See ProducerBackend. The first call sends the gateway the number of frames."""
        until_s = time.monotonic() + timeout_s
        with self._link_lock:
            if not self._is_ended and self._link.flush():
                self._is_ended = True
                end = Frame(self._tag, self._stream, END, self._sequence, time.time_ns())
                self._link.send_last(encode(end))
        while (left := self._left()) and time.monotonic() < until_s:
            if time.monotonic() - self._grown_s > self._patience_s:
                self.purge()
            time.sleep(min(POLL_S, timeout_s))
        return left

    def _left(self) -> int:
        with self._lock:
            return sum(count for _, count in self._under_way)

    def purge(self) -> None:
        with self._lock:
            self._settle(sum(count for _, count in self._under_way), acknowledged=False)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=5)
        self._link.close()
        self._consumer.close()
