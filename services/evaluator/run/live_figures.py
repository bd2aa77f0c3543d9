"""The figures of the run being evaluated as Prometheus metrics: latencies, verdicts, records.

They are those of the published events, as counters since the evaluator began with the run. Each run
begins at 0, which Prometheus takes for a restart, so that the number of series stays that of one
run. A verdict that is taken back is not subtracted, because a counter never falls: it is counted as
retracted.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from threading import Lock
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas import catalogue
from schemas.protocol import VERDICTS

BUCKETS_MS: Final = (
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
    *(1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 60_000),
)
LATENCY: Final = ("pipeline", "stage", "definition", "phase")
VERDICT: Final = ("pipeline", "stage", "phase", "verdict")
TOPIC: Final = ("topic", "pipeline", "stage")
COUNTED: Final = {
    "records": "Records, by topic",
    "bytes": "Bytes of the values of records, by topic",
    "aborted": "Records of aborted transactions, by topic",
}
Labels = tuple[str, ...]


class LiveFigures(Collector):
    """Collects the figures of one run at a time. Added to and read by different threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear("")

    def _clear(self, run_id: str) -> None:
        self._run_id = run_id
        self._latencies: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_MS) + 1))
        self._sums_ms: Counter[Labels] = Counter()
        self._verdicts: Counter[Labels] = Counter()
        self._retracted: Counter[Labels] = Counter()
        self._topics: dict[str, Counter[Labels]] = {name: Counter() for name in COUNTED}

    def begin(self, run_id: str) -> None:
        """Forget the figures of the run before."""
        with self._lock:
            self._clear(run_id)

    def add(self, topic: str, fields: dict[str, Any]) -> None:
        """Add the fields of an event of a topic; those without such figures are ignored."""
        with self._lock:
            if topic == catalogue.LATENCY:
                self._add_latencies(fields)
            elif topic == catalogue.VERDICTS:
                self._add_verdicts(fields)
            elif topic == catalogue.THROUGHPUT:
                labels = tuple(fields[name] for name in TOPIC)
                for name, counted in self._topics.items():
                    counted[labels] += fields[name]

    def _add_latencies(self, fields: dict[str, Any]) -> None:
        labels = tuple(fields[name] for name in LATENCY)
        buckets = self._latencies[labels]
        for latency_ms, count in zip(fields["latencies_ms"], fields["counts"], strict=True):
            buckets[bisect_left(BUCKETS_MS, latency_ms)] += count
            self._sums_ms[labels] += max(0, latency_ms) * count  # a sum of a histogram never falls

    def _add_verdicts(self, fields: dict[str, Any]) -> None:
        for verdict in VERDICTS:
            labels = (fields["pipeline"], fields["stage"], fields["phase"], verdict)
            count = fields[verdict]
            if count > 0:
                self._verdicts[labels] += count
            elif count:
                self._retracted[labels] -= count

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        with self._lock:
            families = [
                self._run(),
                self._histogram(),
                *self._counters(),
            ]
        yield from families

    def describe(self) -> list[Metric]:
        """None: their labels are those of the run."""
        return []

    def _run(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegauge_run_info", "The run being evaluated, 1", labels=["run_id"]
        )
        if self._run_id:
            family.add_metric([self._run_id], 1)
        return family

    def _histogram(self) -> Metric:
        family = HistogramMetricFamily(
            "tidegauge_output_latency_seconds",
            "Latency of first outputs, by definition; negative ones are in the lowest bucket",
            labels=LATENCY,
        )
        bounds = [*(str(ms / 1000) for ms in BUCKETS_MS), "+Inf"]
        for labels, counts in sorted(self._latencies.items()):
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums_ms[labels] / 1000)
        return family

    def _counters(self) -> list[Metric]:
        families: list[tuple[str, str, Labels, Counter[Labels]]] = [
            ("verdicts", "Outputs that got a verdict", VERDICT, self._verdicts),
            (
                "verdicts_retracted",
                "Outputs whose verdict was taken back",
                VERDICT,
                self._retracted,
            ),
            *(
                (f"topic_{name}", title, TOPIC, self._topics[name])
                for name, title in COUNTED.items()
            ),
        ]
        result: list[Metric] = []
        for name, title, names, counted in families:
            family = CounterMetricFamily(f"tidegauge_{name}", title, labels=names)
            for labels, count in sorted(counted.items()):
                family.add_metric(labels, count)
            result.append(family)
        return result
