"""The Kafka client of a load: accepts batches and reports the outcome of every record.

`BatchProducer` passes whole batches to librdkafka; `FrameBackend` sends frames to the gateway.

Frames go over the network by TCP, UDP or ZeroMQ (schemas/frame.py). Sending never waits for the
receiver. Frames beyond a small buffer that a socket does not accept stay due, so a slow receiver
shows up as send delay, or with UDP as loss. A record is acknowledged when the end offset of its
topic has advanced past it. Records that do not arrive in time have failed.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from confluent_kafka import KafkaException, TopicPartition

from schemas.frame import END, HELLO, LENGTH, MAX_DATAGRAM_BYTES, ZEROMQ_USER, Frame, encode
from services.generator import librdkafka
from services.generator.batch_producer import PARTITIONS_IN_FLIGHT, BatchProducer, PartitionQueues
from services.generator.librdkafka import ClientError
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
RECONNECT_S = 0.2
CONNECT_S = 5.0
AT_ONCE = 200  # frames between two clock readings
REST_BYTES = 256 * 1024
UDP_QUIET_S = 2.0  # datagrams that have not arrived by then are lost
ENDS, END_EVERY_S = 5, 0.02  # END frames are repeated because datagrams may be lost


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


class Link(Protocol):
    """Sends frames. last_error: empty if there was none."""

    last_error: str

    def send(self, frame: bytes) -> bool:
        """Send one frame; returns whether it was accepted."""

    def flush(self) -> bool:
        """Send the rest of an accepted frame; returns whether nothing is left."""

    def close(self) -> None:
        """Close the connection."""


class TcpLink:
    """A connection that is reopened when it breaks; frames in flight are lost. greeting: the first
    frame of each connection."""

    def __init__(self, address: tuple[str, int], greeting: bytes) -> None:
        self.last_error = ""
        self._address = address
        self._greeting = LENGTH.pack(len(greeting)) + greeting
        self._rest = bytearray()
        self._retry_s = 0.0
        self._socket: socket.socket | None = None
        until_s = time.monotonic() + CONNECT_S  # the gateway opens its port on the same command
        while self._socket is None:
            try:
                self._connect()
            except OSError as error:
                if time.monotonic() > until_s:
                    place = f"{address[0]}:{address[1]}"
                    raise ClientError(f"no gateway answers at {place}: {error}") from error
                time.sleep(POLL_S)

    def _connect(self) -> None:
        connected = socket.create_connection(self._address, timeout=CONNECT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(self._greeting)
        connected.setblocking(False)
        self._socket = connected

    def send(self, frame: bytes) -> bool:
        """See Link. Buffers up to REST_BYTES that the socket does not accept."""
        if len(self._rest) > REST_BYTES and not self.flush():
            return False
        self._rest += LENGTH.pack(len(frame)) + frame
        return True

    def flush(self) -> bool:
        try:
            if self._socket is None:
                if time.monotonic() < self._retry_s:
                    return False
                self._connect()
            while self._rest and self._socket is not None:
                taken = self._socket.send(self._rest)
                del self._rest[:taken]
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken(error)
            return False
        return True

    def _broken(self, error: OSError) -> None:
        self.last_error = f"the connection to the gateway was lost: {error}"
        self._retry_s = time.monotonic() + RECONNECT_S
        self._rest.clear()  # it may start in the middle of a frame
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class UdpLink:
    """One datagram per frame."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.last_error = ""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(address)

    def send(self, frame: bytes) -> bool:
        if len(frame) > MAX_DATAGRAM_BYTES:
            raise ClientError(f"a record of {len(frame)} bytes does not fit into a datagram")
        try:
            self._socket.send(frame)
        except BlockingIOError:
            return False
        except OSError as error:  # nobody listens: reported by the response to an earlier datagram
            self.last_error = f"a datagram was refused: {error}"
        return True

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        self._socket.close()


class ZeromqLink:
    """A PUSH socket. libzmq queues messages up to its high-water mark, and reconnects. tag: of the
    run, the password."""

    def __init__(self, address: tuple[str, int], tag: bytes) -> None:
        import zmq

        self.last_error = ""
        self._again, self._no_wait = zmq.Again, zmq.NOBLOCK
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, AT_ONCE)
        self._socket.setsockopt(zmq.LINGER, int(1000 * CONNECT_S))
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # do not queue messages for a disconnected peer
        self._socket.setsockopt_string(zmq.PLAIN_USERNAME, ZEROMQ_USER)
        self._socket.setsockopt_string(zmq.PLAIN_PASSWORD, tag.hex())
        self._socket.connect(f"tcp://{address[0]}:{address[1]}")
        if not self._socket.poll(int(1000 * CONNECT_S), zmq.POLLOUT):
            self.close()
            raise ClientError(f"no gateway answers at {address[0]}:{address[1]}")

    def send(self, frame: bytes) -> bool:
        try:
            self._socket.send(frame, self._no_wait)
        except self._again:
            return False
        return True

    def flush(self) -> bool:
        return True

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def open_link(transport: str, address: tuple[str, int], greeting: bytes, tag: bytes) -> Link:
    """The link of a transport. greeting: first frame of a connection; tag: of the run. Raises
    ClientError if no gateway responds."""
    if transport == "tcp":
        return TcpLink(address, greeting)
    if transport == "zeromq":
        return ZeromqLink(address, tag)
    try:
        return UdpLink(address)
    except OSError as error:  # for example an unknown host name
        raise ClientError(f"no gateway answers at {address[0]}:{address[1]}: {error}") from error


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
        self._is_udp = transport == "udp"
        self._patience_s = UDP_QUIET_S if self._is_udp else settings.generator_delivery_timeout_s
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
                self._tell_end()
        while (left := self._left()) and time.monotonic() < until_s:
            if time.monotonic() - self._grown_s > self._patience_s:
                self.purge()
            time.sleep(min(POLL_S, timeout_s))
        return left

    def _tell_end(self) -> None:
        frame = encode(Frame(self._tag, self._stream, END, self._sequence, time.time_ns()))
        for _ in range(ENDS if self._is_udp else 1):
            self._link.send(frame)
            self._link.flush()
            if self._is_udp:
                time.sleep(END_EVERY_S)

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
