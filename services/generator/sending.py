"""Hand records to the Kafka client, in order, and count what becomes of each."""

from typing import Any

from confluent_kafka import Producer

from schemas.catalogue import FLOW, SPEED
from services.generator.ahead import Prepared
from services.generator.settings import GeneratorSettings
from services.generator.statistics import SecondTally
from services.runtime.clock import Clock
from services.runtime.kafka import idempotent_producer

CROWDED_RATE_PER_SECOND = 20_000
CROWDED_LINGER_MS = 2.0


def linger_ms(rate_per_second: float, configured: float | None) -> float:
    """How long the client waits to fill a batch: not at all, until single records cost too much."""
    if configured is not None:
        return configured
    return CROWDED_LINGER_MS if rate_per_second >= CROWDED_RATE_PER_SECOND else 0.0


def load_producer(settings: GeneratorSettings, rate_per_second: float) -> Producer:
    """A producer for one run's load.

    `murmur2_random` gives a key the same partition number in both input topics, and the same as
    Java clients do.
    """
    properties: dict[str, Any] = {
        "linger.ms": linger_ms(rate_per_second, settings.generator_linger_ms),
        "partitioner": "murmur2_random",
        "socket.nagle.disable": True,
        "queue.buffering.max.messages": settings.generator_queue_records,
        "message.timeout.ms": settings.generator_delivery_timeout_s * 1000,
    }
    return idempotent_producer(settings, "generator-load", **properties)


class RecordSender:
    """Hands records to a producer. clock: epoch microseconds."""

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock

    def send(self, prepared: Prepared, start: int, stop: int, tally: SecondTally) -> int:
        """Send records `start` to `stop` (exclusive, positions in the slice) of a slice.

        Returns the position of the first that was not sent: `stop`, or less when the client's
        queue is full. Raises KafkaException when the producer cannot go on.
        """
        produce, clock = self._producer.produce, self._clock
        scheduled_us, keys, values = prepared.scheduled_us, prepared.keys, prepared.values
        for position in range(start, stop):
            topic = SPEED if position % 2 else FLOW
            sent_us = clock()
            try:
                produce(topic, values[position], keys[position], on_delivery=tally.delivered)
            except BufferError:
                return position
            tally.delays_us.append(sent_us - scheduled_us[position])
        return stop
