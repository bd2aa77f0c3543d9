"""Settings of the generator."""

from typing import Literal

from pydantic import Field, model_validator

from services.runtime.settings import ServiceSettings


class GeneratorSettings(ServiceSettings):
    """Fields of the generator, in addition to those of every service.

    generator_linger_ms: how long the client may wait to fill a batch; None chooses by rate.
    generator_queue_records: limit of records in the Kafka client, sent but not yet acknowledged. If
    they do not fit into the processor cache, each record costs up to half as much again.
    generator_backlog_records: limit of due records that wait for room in that queue; older ones are
    given up and counted as failed.
    generator_delivery_timeout_s: an unacknowledged record has failed after this time.
    generator_acks: `all` with idempotence, so that there are no duplicates, or `1` without.
    generator_probe_sets: sets of probe traffic per second while a run is prepared (fewer if a set
    has many records), so that a pipeline's code is warm when the load starts.
    generator_gateway: address of the gateway, `host:port`; empty: the one of this stack.
    generator_instance_index, generator_instance_count: the shard of every load that this instance
    sends, if several generators run.
    """

    generator_linger_ms: float | None = Field(None, ge=0, le=1000)
    generator_queue_records: int = Field(32_000, ge=100, le=10_000_000)
    generator_backlog_records: int = Field(1_000_000, ge=10_000, le=100_000_000)
    generator_delivery_timeout_s: int = Field(60, ge=1, le=3600)
    generator_acks: Literal["all", "1"] = "all"
    generator_probe_sets: int = Field(60, ge=1, le=10_000)
    generator_gateway: str = Field("", pattern=r"^([^:]+:[0-9]{1,5})?$")
    generator_instance_index: int = Field(0, ge=0)
    generator_instance_count: int = Field(1, ge=1, le=1024)

    @property
    def gateway_address(self) -> tuple[str, int]:
        """Host and port to which frames are sent."""
        if not self.generator_gateway:
            return self.host, self.port("gateway_frames")
        host, _, port = self.generator_gateway.rpartition(":")
        return host, int(port)

    @model_validator(mode="after")
    def _one_of_them(self) -> "GeneratorSettings":
        if self.generator_instance_index >= self.generator_instance_count:
            raise ValueError("generator_instance_index must be below generator_instance_count")
        return self
