"""What the generator shows to the people who run it, on `/metrics`."""

from typing import Any

from prometheus_client import Counter, Gauge

RECORDS = Counter(
    "tidegauge_generator_records_total", "Records of the load by what became of them", ["outcome"]
)
WAITING = Gauge(
    "tidegauge_generator_waiting_records", "Records that are due and not yet handed to the client"
)


def count(event: dict[str, Any]) -> None:
    """Count what a `results_generator` event adds."""
    for outcome in ("intended", "sent", "acknowledged", "failed"):
        RECORDS.labels(outcome).inc(event[outcome])
