"""Settings of the collector."""

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

from pydantic import Field, field_validator

from services.collector.sources import NAME, Target
from services.runtime.settings import ServiceSettings

TargetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
BROKER = "broker"


# Named in deploy/kafka/jmx-exporter.yaml.
METRICS: Final = (
    "kafka_log_log_size",
    "kafka_network_requestmetrics_requests_total",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_requestmetrics_totaltimems_mean",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
)


def broker_target(host: str, port: int) -> Target:
    """The exporter of a broker. Scrape these metrics by name only: the default ones of every
    exporter include a count of deadlocked threads, for which the JVM stops all threads."""
    query = urlencode([("name[]", name) for name in METRICS])
    return Target(url=f"http://{host}:{port}/metrics?{query}", metrics=METRICS)


class CollectorSettings(ServiceSettings):
    """Fields of the collector, in addition to those of every service.

    collector_interval_s: time between samples. collector_scan_interval_s: time between searches for
    new processes, which cost more; use before a process was found is counted then.
    collector_targets: Prometheus endpoints to scrape, by their name in the results:
    `{"cadvisor": {"url": "http://127.0.0.1:8080/metrics", "metrics": ["container_memory_*"]}}`.
    collector_scrape_interval_s: interval for these and for the lag of consumer groups.
    collector_scrape_timeout_s, _bytes, _series: limits of one response; larger responses are
    rejected.
    """

    collector_interval_s: float = Field(1.0, ge=0.1, le=60)
    collector_scan_interval_s: float = Field(2.0, ge=0.1, le=60)
    collector_targets: dict[TargetName, Target] = Field({}, max_length=32)
    collector_scrape_interval_s: float = Field(5.0, ge=1, le=3600)
    collector_scrape_timeout_s: float = Field(2.0, ge=0.1, le=60)
    collector_scrape_bytes: int = Field(4 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)
    collector_scrape_series: int = Field(2000, ge=1, le=20_000)

    @field_validator("collector_targets")
    @classmethod
    def _other_names(cls, targets: dict[str, Target]) -> dict[str, Target]:
        if NAME in targets:
            raise ValueError(f"must not be named {NAME}, which is the cluster itself")
        return targets

    @property
    def targets(self) -> dict[str, Target]:
        """All scrape targets, including the stack's own broker."""
        if self.kafka_bootstrap:
            return self.collector_targets
        broker = broker_target(self.host, self.port("kafka_metrics"))
        return {BROKER: broker} | self.collector_targets

    @property
    def stack_path(self) -> Path:
        """Path of the deployment's list of processes by service."""
        return self.data / "stack.json"
