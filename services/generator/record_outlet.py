"""Hand over messages one by one through confluent-kafka; see outlet.py."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from services.generator.librdkafka import ClientError
from services.generator.message_batch import MessageBatch

POLL_S = 0.1


class RecordOutlet:
    """A confluent-kafka producer and the thread that takes its delivery reports."""

    def __init__(self, properties: dict[str, Any]) -> None:
        try:
            self._producer = Producer(properties)
        except KafkaException as error:
            raise ClientError(str(error)) from error
        self.trouble = ""
        self._delivered: Callable[[int, int, int], None] = lambda *_: None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="deliveries", daemon=True)
        self._thread.start()

    def count_into(self, delivered: Callable[[int, int, int], None]) -> None:
        """See Outlet."""
        self._delivered = delivered

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """See Outlet."""
        produce = self._producer.produce
        for position in range(start, stop):
            key, value = batch.record(position)
            report = partial(self._report, int(batch.seconds[position]))
            try:
                produce(batch.topic, value, key, on_delivery=report)
            except BufferError:
                return position
            except KafkaException as error:
                raise ClientError(str(error)) from error
        return stop

    def flush(self, timeout_s: float) -> int:
        """See Outlet."""
        return int(self._producer.flush(timeout_s))

    def purge(self) -> None:
        """See Outlet."""
        self._producer.purge()

    def close(self) -> None:
        """See Outlet."""
        if self._closed.is_set():
            return
        self.purge()
        self._closed.set()
        self._thread.join(timeout=10)

    def _report(self, second: int, error: object, _message: object) -> None:
        if error is not None:
            self.trouble = str(error)
        self._delivered(second, int(error is None), int(error is not None))

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(POLL_S)
