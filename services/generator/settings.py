"""Settings of the generator."""

from pydantic import Field

from services.runtime.settings import ServiceSettings


class GeneratorSettings(ServiceSettings):
    """Fields of the generator, beside those of every service.

    generator_linger_ms: how long the client may wait to fill a batch; None picks by rate.
    generator_queue_records: records the Kafka client may hold, sent but not yet acknowledged.
    generator_backlog_records: due records that may wait for room in that queue; the oldest beyond
    it are given up and counted as failed.
    generator_delivery_timeout_s: after that long a record not acknowledged has failed.
    """

    generator_linger_ms: float | None = Field(None, ge=0, le=1000)
    generator_queue_records: int = Field(200_000, ge=100, le=10_000_000)
    generator_backlog_records: int = Field(1_000_000, ge=10_000, le=100_000_000)
    generator_delivery_timeout_s: int = Field(60, ge=1, le=3600)
