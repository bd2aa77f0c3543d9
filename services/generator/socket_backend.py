"""Feeds a system behind sockets: every record is a frame of the network, and a record of its input
topic with the same send time, from which the evaluator knows what was sent (docs/sockets.md).
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.frame import (
    END,
    HELLO,
    PROBES,
    STAMP,
    STAMP_HEADER,
    Frame,
    encode,
)
from services.generator.frame_batch import Frames, frames_of, records_of
from services.generator.links import AT_ONCE, open_system_link
from services.generator.message_batch import MessageBatch
from services.generator.settings import GeneratorSettings
from services.runtime.kafka import frame_tag, idempotent_producer

ROOM_S = 0.005


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
        self._places = {topic: (0, number) for number, topic in enumerate(topics)}
        self._sent = self._probes = 0  # frames
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
        number = self._places[topic][1]
        frame = Frame(self._tag, PROBES, number, self._probes, time.monotonic_ns(), key, value)
        self._probes += self._link.send(encode(frame))
        self._link.flush()

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """See ProducerBackend."""
        position = start
        while position < stop:
            until = min(stop, position + AT_ONCE)
            records = records_of(batch, position, until)
            place, sequence, sent_ns = self._places[batch.topic], self._sent, time.monotonic_ns()
            frames = frames_of(records, self._tag, place, sequence, sent_ns)
            accepted = self._link.send_all(frames)
            self._sent += accepted
            self._append(batch.topic, frames, accepted, sent_ns, batch.seconds[position:until])
            position += accepted
            if position < until:
                break
        self._producer.poll(0)
        return position

    def _append(
        self, topic: str, frames: Frames, count: int, sent_ns: int, seconds: NDArray[np.int32]
    ) -> None:
        """Append the first `count` records, which were sent, to their input topic."""
        headers: list[tuple[str, str | bytes | None]] = [(STAMP_HEADER, STAMP.pack(sent_ns))]
        outcomes = {
            second: partial(self._appended, second)
            for second in np.unique(seconds[:count]).tolist()
        }
        records = zip(
            frames.keys[:count].to_pylist(),
            frames.values[:count].to_pylist(),
            seconds[:count].tolist(),
            strict=True,
        )
        for key, value, second in records:
            done = outcomes[second]
            while True:
                try:
                    self._producer.produce(topic, value, key, headers=headers, on_delivery=done)
                    break
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
                end = Frame(self._tag, 0, END, self._sent, time.monotonic_ns())
                self._link.send_last(encode(end))
            else:
                self._producer.poll(ROOM_S)
        waiting: int = self._producer.flush(max(0.0, until_s - time.monotonic()))
        return waiting + (not self._is_ended)

    def purge(self) -> None:
        """See ProducerBackend."""
        self._is_ended = True
        self._producer.purge()

    def close(self) -> None:
        """See ProducerBackend."""
        self._producer.purge()
        self._producer.flush(1)
        self._link.close()
