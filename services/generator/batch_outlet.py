"""Hand whole batches of messages to librdkafka; count deliveries by batch.

librdkafka reports the delivery of a batch of one partition as one event, in the order in which its
messages were handed over. So looking at the first and the last message of a run of equal seconds
is enough to count it, and no Python is spent on single records: about 0.01 µs each.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from ctypes import CDLL
from typing import Any

import numpy as np

from services.generator import librdkafka
from services.generator.in_flight import InFlight, Part, Place, joined
from services.generator.librdkafka import ClientError, Message
from services.generator.message_batch import MessageBatch
from services.generator.partitions import KeyPartitions, by_partition

POLL_MS = 100
FLUSH_LOOK_S = 0.002


class BatchOutlet:
    """A producer of librdkafka and the thread that counts what it delivers.

    partitions: how many each topic has. in_order: the seconds of the batches that it will be given
    never decrease. in_flight: what decides which messages librdkafka may have. All batches must be
    of one load: a number means the same key in all of one topic.
    """

    def __init__(
        self,
        library: CDLL,
        properties: dict[str, Any],
        partitions: dict[str, int],
        in_flight: InFlight,
        in_order: bool,
    ) -> None:
        self._library = library
        self._in_order = in_order
        self._in_flight = in_flight
        self._queue_records = int(properties["queue.buffering.max.messages"])
        # librdkafka's own bound lies above ours, so that a batch is always taken whole.
        bound = {"queue.buffering.max.messages": 2 * self._queue_records}
        texts = {name: _text(value) for name, value in (properties | bound).items()}
        self._handle = librdkafka.new_producer(library, texts)
        self._topics = {
            topic: library.rd_kafka_topic_new(self._handle, topic.encode(), None)
            for topic in partitions
        }
        self._partitions = {
            topic: KeyPartitions(library, count) for topic, count in partitions.items()
        }
        self._delivered: Callable[[int, int, int], None] = lambda *_: None
        self._open = 0  # sent, neither acknowledged nor failed; changed with the lock
        self._fatal = ""
        self.trouble = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._count, name="deliveries", daemon=True)
        self._thread.start()

    def count_into(self, delivered: Callable[[int, int, int], None]) -> None:
        """See Outlet."""
        self._delivered = delivered

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """See Outlet."""
        if self._fatal:
            raise ClientError(self._fatal)
        stop = min(stop, start + max(0, self._queue_records - self._open))
        if stop <= start:
            return start
        messages = batch.messages[start:stop]
        partitions = self._partitions[batch.topic].of(batch.keys[start:stop], batch.names)
        with self._in_flight.lock:
            for partition, positions in by_partition(partitions):
                part = messages if len(positions) == len(messages) else messages[positions]
                self._in_flight.put((batch.topic, partition), batch, part)
            self._open += stop - start
            self._hand_over()
        return stop

    def _hand_over(self) -> None:
        """Give librdkafka what it may have. With the lock."""
        while (batch := self._in_flight.take()) is not None:
            place, parts = batch
            if self._in_flight.expired(parts):
                self._in_flight.done(place, self._fail(parts))
                continue
            messages = joined(parts)
            taken = self._library.rd_kafka_produce_batch(
                self._topics[place[0]],
                place[1],
                librdkafka.COPY_VALUES,
                messages.ctypes.data,
                len(messages),
            )
            if taken != len(messages):
                self._in_flight.done(place, self._refused(messages))

    def flush(self, timeout_s: float) -> int:
        """See Outlet."""
        deadline_s = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline_s:
            time.sleep(FLUSH_LOOK_S)
        return self._open

    def purge(self) -> None:
        """See Outlet."""
        with self._in_flight.lock:
            self._fail(self._in_flight.clear())
        self._library.rd_kafka_purge(self._handle, librdkafka.PURGE_ALL)

    def close(self) -> None:
        """See Outlet."""
        if self._closed.is_set():
            return
        self.purge()
        self._closed.set()
        self._thread.join(timeout=10)
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(topic)
        self._library.rd_kafka_destroy(self._handle)

    def _refused(self, messages: Any) -> int:
        """Count messages that were not taken (too large, an unknown topic) as failed."""
        refused = messages[messages["error"] != librdkafka.NO_ERROR]
        self._say(int(refused["error"][-1]))
        return self._failed(refused)

    def _fail(self, parts: list[Part]) -> int:
        return sum(self._failed(part.messages) for part in parts)

    def _failed(self, messages: Any) -> int:
        for second in messages["private"].tolist():
            self._delivered(second, 0, 1)
        self._open -= len(messages)
        return len(messages)

    def _say(self, error: int) -> None:
        self.trouble = self._library.rd_kafka_err2str(error).decode()

    def _count(self) -> None:
        library = self._library
        events = library.rd_kafka_queue_get_main(self._handle)
        while not self._closed.is_set():
            event = library.rd_kafka_queue_poll(events, POLL_MS)
            if not event:
                continue
            kind = library.rd_kafka_event_type(event)
            if kind == librdkafka.EVENT_DELIVERED:
                self._count_delivered(event)
            elif kind == librdkafka.EVENT_ERROR:
                self.trouble = library.rd_kafka_event_error_string(event).decode()
                if library.rd_kafka_event_error_is_fatal(event):
                    self._fatal = self.trouble
            library.rd_kafka_event_destroy(event)
        library.rd_kafka_queue_destroy(events)

    def _count_delivered(self, event: int) -> None:
        count = self._library.rd_kafka_event_message_count(event)
        pointers = np.zeros(count, np.uint64)
        count = self._library.rd_kafka_event_message_array(event, pointers.ctypes.data, count)
        batch = pointers[:count].tolist()
        # With the lock: messages that expire are counted by whoever hands over.
        with self._in_flight.lock:
            for second, failed, records in runs(batch, self._in_order):
                self._delivered(second, 0 if failed else records, records if failed else 0)
            for place, records in self._places(batch):
                self._in_flight.done(place, records)
            self._open -= count
            self._hand_over()

    def _places(self, pointers: list[int]) -> list[tuple[Place, int]]:
        """Topic and partition of messages, and how many of each. Those that were delivered are of
        one; those that have failed may be of several."""
        if pointers and Message.from_address(pointers[-1]).error == librdkafka.NO_ERROR:
            return [(self._place(pointers[0]), len(pointers))]
        return list(Counter(map(self._place, pointers)).items())

    def _place(self, pointer: int) -> Place:
        message = Message.from_address(pointer)
        return self._library.rd_kafka_topic_name(message.topic).decode(), message.partition


def runs(pointers: list[int], in_order: bool) -> Iterator[tuple[int, bool, int]]:
    """Second, whether they failed, and number of adjacent messages that have these in common.

    `in_order`: the seconds of a batch never decrease, so between two delivered messages of one
    second all are like them. Failures, and seconds in no order, are looked at one by one.
    """
    position = 0
    while position < len(pointers):
        first = Message.from_address(pointers[position])
        failed = first.error != librdkafka.NO_ERROR
        end = position + 1 if failed or not in_order else _end_of_run(pointers, position)
        yield first.private, failed, end - position
        position = end


def _end_of_run(pointers: list[int], start: int) -> int:
    """Position after the last message that is like that at `start`, by bisection."""
    second = Message.from_address(pointers[start]).private

    def same(position: int) -> bool:
        message = Message.from_address(pointers[position])
        return bool(message.error == librdkafka.NO_ERROR and message.private == second)

    if same(len(pointers) - 1):
        return len(pointers)
    low, high = start, len(pointers) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return high


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
