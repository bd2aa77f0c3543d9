"""Feeds a system behind sockets: every record is a frame of the network, and a record of its input
topic with the same send time, from which the evaluator knows what was sent (docs/sockets.md).
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from schemas.frame import (
    END,
    HELLO,
    PROBES,
    STAMP,
    STAMP_HEADER,
    Frame,
    encode,
)
from services.generator.links import AT_ONCE, open_system_link
from services.generator.message_batch import MessageBatch
from services.generator.settings import GeneratorSettings
from services.runtime.kafka import frame_tag, idempotent_producer

ROOM_S = 0.005
ENDS, END_EVERY_S = 5, 0.02  # END frames are repeated because datagrams may be lost


class SocketBackend:
    """A ProducerBackend whose records go to a system directly. A record is acknowledged when Kafka
    has appended it to its input topic; what the system received is known from its results.

    A record is sent before it is appended, so Kafka delays no frame of its own; when the client's
    queue is full, the schedule waits for it.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        topics: Sequence[str],
        transport: str,
        run_id: str,
        linger_ms: float,
    ) -> None:
        self.last_error = ""
        self._tag = frame_tag(settings, run_id)
        hello = encode(Frame(self._tag, 0, HELLO, 0, time.monotonic_ns()))
        address = settings.host, settings.port("system_frames")
        self._link = open_system_link(transport, address, hello)
        self._ends = ENDS if transport == "udp" else 1
        self._numbers = {topic: number for number, topic in enumerate(topics)}
        self._sequences = {0: 0, PROBES: 0}
        self._delivered: Callable[[int, int, int], None] = lambda *_: None
        self._is_ended = False
        properties = {
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": settings.generator_queue_records,
            "message.timeout.ms": settings.generator_delivery_timeout_s * 1000,
        }
        self._producer = idempotent_producer(settings, "generator-load", **properties)

    def count_into(self, delivered: Callable[[int, int, int], None]) -> None:
        """See ProducerBackend."""
        self._delivered = delivered

    def probe(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a record of probe traffic to the system only; it is lost before the system has
        opened its port."""
        self._frame(PROBES, topic, key, value, time.monotonic_ns())
        self._link.flush()

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """See ProducerBackend."""
        for position in range(start, stop):
            key, value = batch.record(position)
            sent_ns = time.monotonic_ns()
            if not self._frame(0, batch.topic, key, value, sent_ns):
                stop = position
                break
            self._append(batch.topic, key, value, sent_ns, int(batch.seconds[position]))
            if (position - start) % AT_ONCE == AT_ONCE - 1:
                self._link.flush()
        self._link.flush()
        self._producer.poll(0)
        return stop

    def _frame(self, stream: int, topic: str, key: bytes, value: bytes, sent_ns: int) -> bool:
        number, sequence = self._numbers[topic], self._sequences[stream]
        frame = Frame(self._tag, stream, number, sequence, sent_ns, key, value)
        if not self._link.send(encode(frame)):
            return False
        self._sequences[stream] += 1
        return True

    def _append(self, topic: str, key: bytes, value: bytes, sent_ns: int, second: int) -> None:
        """Append a record that was sent to its input topic."""
        headers = {STAMP_HEADER: STAMP.pack(sent_ns)}
        done = partial(self._appended, second)
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=done)
                return
            except BufferError:
                self._producer.poll(ROOM_S)

    def _appended(self, second: int, error: Any, _message: Any) -> None:
        if error is not None:
            self.last_error = str(error)
        self._delivered(second, int(error is None), int(error is not None))

    def count_outcomes(self) -> None:
        """See ProducerBackend."""
        self._link.flush()
        self._producer.poll(0)

    def flush(self, timeout_s: float) -> int:
        """See ProducerBackend. The first call tells the system the number of frames."""
        until_s = time.monotonic() + timeout_s
        while not self._is_ended and time.monotonic() < until_s:
            if self._link.flush():
                self._is_ended = True
                self._tell_end()
            else:
                self._producer.poll(ROOM_S)
        waiting: int = self._producer.flush(max(0.0, until_s - time.monotonic()))
        return waiting + (not self._is_ended)

    def _tell_end(self) -> None:
        end = encode(Frame(self._tag, 0, END, self._sequences[0], time.monotonic_ns()))
        for number in range(self._ends):
            if number:
                time.sleep(END_EVERY_S)
            self._link.send(end)
            self._link.flush()

    def purge(self) -> None:
        """See ProducerBackend."""
        self._is_ended = True
        self._producer.purge()

    def close(self) -> None:
        """See ProducerBackend."""
        self._producer.purge()
        self._producer.flush(1)
        self._link.close()
