"""The figures of the run being evaluated as Prometheus metrics.

Each run begins at 0, which Prometheus takes for a restart, so that the number of series stays that
of one run.
"""

from collections.abc import Iterator
from threading import Lock
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.runtime.figure_metrics import FigureCounts, families


class LiveFigures(Collector):
    """Collects the figures of one run at a time. Added to and read by different threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._run_id, self._counts = "", FigureCounts()

    def begin(self, run_id: str) -> None:
        """Forget the figures of the run before."""
        with self._lock:
            self._run_id, self._counts = run_id, FigureCounts()

    def add(self, topic: str, fields: dict[str, Any]) -> None:
        """Add the fields of an event of a topic; those without such figures are ignored."""
        with self._lock:
            self._counts.add(topic, fields)

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        run = GaugeMetricFamily(
            "tidegauge_run_info", "The run being evaluated, 1", labels=["run_id"]
        )
        with self._lock:
            if self._run_id:
                run.add_metric([self._run_id], 1)
            result = [run, *families({(): self._counts})]
        yield from result

    def describe(self) -> list[Metric]:
        """None: their labels are those of the run."""
        return []
