"""Where batches go: the Kafka client, and what it says became of every record.

Two ways, the same guarantees. `BatchOutlet` hands whole batches to librdkafka and counts
deliveries by batch; `RecordOutlet` calls confluent-kafka once per record, several times slower,
where the functions that the other one needs are not to be found.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from services.generator import librdkafka
from services.generator.batch_outlet import BatchOutlet
from services.generator.in_flight import PARTITIONS_IN_FLIGHT, InFlight
from services.generator.message_batch import MessageBatch
from services.generator.record_outlet import RecordOutlet
from services.generator.settings import GeneratorSettings
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    assigned_consumer,
    client_properties,
    partition_ids,
)

CROWDED_RATE_PER_SECOND = 20_000
CROWDED_LINGER_MS = 2.0
BATCH_RECORDS = 2_000  # a fraction of what may be under way, so that batches follow each other

# second of the load (-1: none), acknowledged, failed
Delivered = Callable[[int, int, int], None]


class Outlet(Protocol):
    """Takes batches, keeps their order, and tells what became of each record.

    trouble: the client's last error in words; empty when there was none.
    """

    trouble: str

    def count_into(self, delivered: Delivered) -> None:
        """Whom to tell from now on; called from a thread of the outlet."""

    def send(self, batch: MessageBatch, start: int, stop: int) -> int:
        """Hand over messages `start` to `stop` (exclusive) of a batch; returns the position of the
        first that was not taken: `stop`, or less when the queue is full. Raises ClientError when
        the client cannot go on."""

    def flush(self, timeout_s: float) -> int:
        """Wait until nothing is under way; returns how many records still are."""

    def purge(self) -> None:
        """Fail what is under way."""

    def close(self) -> None:
        """Leave; what is under way is lost."""


def linger_ms(rate_per_second: float, configured: float | None) -> float:
    """How long the client waits to fill a batch: not at all, until single records cost too much."""
    if configured is not None:
        return configured
    return CROWDED_LINGER_MS if rate_per_second >= CROWDED_RATE_PER_SECOND else 0.0


def load_properties(settings: GeneratorSettings, rate_per_second: float) -> dict[str, Any]:
    """Properties of a load's producer.

    `murmur2_random` gives a key the same partition number in both input topics, and the same as
    Java clients do.
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
    """How many partitions the input topics have, and how many brokers there are. Raises
    KafkaUnavailableError."""
    consumer = assigned_consumer(settings, "generator-partitions")
    try:
        partitions = {topic: len(partition_ids(consumer, topic)) for topic in topics}
        return partitions, len(consumer.list_topics(timeout=KAFKA_TIMEOUT_S).brokers)
    finally:
        consumer.close()


def open_outlet(
    settings: GeneratorSettings, topics: Sequence[str], rate_per_second: float, in_order: bool
) -> Outlet:
    """An outlet for one load to some topics that reaches `rate_per_second`; in_order: the seconds
    of its batches never decrease, as they do when records are late on purpose. Raises
    ClientError."""
    properties = load_properties(settings, rate_per_second)
    library = librdkafka.load() if settings.generator_client != "record" else None
    if library is not None:
        partitions, brokers = _cluster(settings, topics)
        # Without idempotence librdkafka has requests enough in flight.
        places = PARTITIONS_IN_FLIGHT * brokers if properties["enable.idempotence"] else None
        in_flight = InFlight(places, BATCH_RECORDS, settings.generator_delivery_timeout_s)
        return BatchOutlet(library, properties, partitions, in_flight, in_order)
    if settings.generator_client == "batch":
        raise librdkafka.ClientError("the functions of librdkafka are not to be found")
    return RecordOutlet(properties)
