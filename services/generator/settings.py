"""Settings of the generator."""

from typing import Literal

from pydantic import Field, model_validator

from services.runtime.settings import ServiceSettings


class GeneratorSettings(ServiceSettings):
    """Fields of the generator, beside those of every service.

    generator_linger_ms: how long the client may wait to fill a batch; None picks by rate.
    generator_queue_records: records the Kafka client may hold, sent but not yet acknowledged. When
    they do not fit into a processor's cache, every record costs up to a half more.
    generator_backlog_records: due records that may wait for room in that queue; the oldest beyond
    it are given up and counted as failed.
    generator_delivery_timeout_s: after that long a record not acknowledged has failed.
    generator_acks: `all` with idempotence, so that nothing comes twice, or `1` without.
    generator_client: `batch` hands whole batches to librdkafka, `record` calls the client once per
    record, `auto` takes the first where it can.
    generator_probe_sets: sets of probe traffic a second while a run is prepared (fewer where a set
    has many records), so that a pipeline's code is warm when the load starts.
    generator_gateway: where the gateway listens, `host:port`; empty: the one of this stack.
    generator_instance_index, generator_instance_count: which shard of every load this one sends,
    when several generators run.
    """

    generator_linger_ms: float | None = Field(None, ge=0, le=1000)
    generator_queue_records: int = Field(32_000, ge=100, le=10_000_000)
    generator_backlog_records: int = Field(1_000_000, ge=10_000, le=100_000_000)
    generator_delivery_timeout_s: int = Field(60, ge=1, le=3600)
    generator_acks: Literal["all", "1"] = "all"
    generator_client: Literal["auto", "batch", "record"] = "auto"
    generator_probe_sets: int = Field(60, ge=1, le=10_000)
    generator_gateway: str = Field("", pattern=r"^([^:]+:[0-9]{1,5})?$")
    generator_instance_index: int = Field(0, ge=0)
    generator_instance_count: int = Field(1, ge=1, le=1024)

    @property
    def gateway_address(self) -> tuple[str, int]:
        """Where frames go: host and port."""
        if not self.generator_gateway:
            return self.host, self.port("gateway_frames")
        host, _, port = self.generator_gateway.rpartition(":")
        return host, int(port)

    @model_validator(mode="after")
    def _one_of_them(self) -> "GeneratorSettings":
        if self.generator_instance_index >= self.generator_instance_count:
            raise ValueError("generator_instance_index must be below generator_instance_count")
        return self
