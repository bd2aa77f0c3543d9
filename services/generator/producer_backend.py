"""The Kafka client of a load: accepts batches and reports the outcome of every record.

`BatchProducer` passes whole batches to librdkafka; `FrameBackend` sends frames to the gateway.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from services.generator import librdkafka
from services.generator.batch_producer import PARTITIONS_IN_FLIGHT, BatchProducer, PartitionQueues
from services.generator.message_batch import MessageBatch
from services.generator.settings import GeneratorSettings
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    assigned_consumer,
    client_properties,
    partition_ids,
)

CROWDED_RATE_PER_SECOND = 20_000
CROWDED_LINGER_MS = 2.0
BATCH_RECORDS = 2_000  # a fraction of the limit in flight, so that batches overlap
# second of the load (-1: none), acknowledged, failed
Delivered = Callable[[int, int, int], None]


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
