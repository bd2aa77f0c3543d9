"""Settings of the collector."""

from pathlib import Path

from pydantic import Field

from services.runtime.settings import ServiceSettings


class CollectorSettings(ServiceSettings):
    """Fields of the collector, beside those of every service.

    collector_interval_s: time between samples. collector_scan_interval_s: time between searches for
    new processes, which cost more; what a process used before it was found is counted then.
    """

    collector_interval_s: float = Field(1.0, ge=0.1, le=60)
    collector_scan_interval_s: float = Field(2.0, ge=0.1, le=60)

    @property
    def stack_path(self) -> Path:
        """Where the deployment says which processes belong to which service."""
        return self.data / "stack.json"
