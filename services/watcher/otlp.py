"""The metrics of a watch pushed by OTLP over HTTP, with the SDK of OpenTelemetry.

They are the families that `/metrics` shows: a counter is a monotonic sum, a histogram has the same
buckets, both cumulative since the process began; a name loses its unit, which OTLP has in a field
of its own, so that `tidegauge_output_latency_seconds` is `tidegauge_output_latency` in `s`.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

PUSH_S: Final = 10.0
TIMEOUT_S: Final = 5.0
UNITS: Final = {"_seconds": "s", "_bytes": "By"}
SCHEMA: Final = ""
Labels = tuple[tuple[str, str], ...]


def exporter_to(url: str) -> MetricExporter:
    """Sends to a collector. url: its address, such as http://localhost:4318; headers and
    certificates are in the variables that OpenTelemetry specifies (OTEL_EXPORTER_OTLP_…)."""
    for name in ("opentelemetry", "urllib3", "requests"):  # failures are told by `push`
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    return OTLPMetricExporter(endpoint=f"{url.rstrip('/')}/v1/metrics", timeout=TIMEOUT_S)


class OtlpPush:
    """Pushes the metrics of a collector every PUSH_S in a thread, and when it is closed. tell: gets
    a sentence when pushing begins to fail."""

    def __init__(
        self,
        exporter: MetricExporter,
        metrics: Collector,
        tell: Callable[[str], None],
        push_s: float = PUSH_S,
    ) -> None:
        self._exporter, self._metrics, self._tell = exporter, metrics, tell
        self._push_s, self._began_ns = push_s, time.time_ns()
        self._is_failing = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Push the last figures, and stop."""
        self._over.set()
        self._thread.join(2 * TIMEOUT_S)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._over.wait(self._push_s):
            self._push()
        self._push()

    def _push(self) -> None:
        data = metrics_data(self._metrics.collect(), self._began_ns, time.time_ns())
        try:
            is_done = self._exporter.export(data) is MetricExportResult.SUCCESS
        except OSError:
            is_done = False
        if not is_done and not self._is_failing:
            self._tell("The metrics could not be pushed by OTLP; it is tried again.")
        self._is_failing = not is_done


def metrics_data(families: Iterable[Family], began_ns: int, now_ns: int) -> MetricsData:
    """Families of Prometheus as the SDK has them. began_ns, now_ns: of the counts, epoch
    nanoseconds. Families without a sample are left out."""
    metrics = [_metric(each, began_ns, now_ns) for each in families if each.samples]
    scope = ScopeMetrics(InstrumentationScope("tidegauge"), metrics, SCHEMA)
    resource = Resource.create({"service.name": "tidegauge"})
    return MetricsData([ResourceMetrics(resource, [scope], SCHEMA)])


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric:
    unit = next((unit for ending, unit in UNITS.items() if family.name.endswith(ending)), "1")
    name = family.name.removesuffix("_seconds").removesuffix("_bytes")
    cumulative = AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        data = Histogram([*_histograms(family, began_ns, now_ns)], cumulative)
        return Metric(name, family.documentation, unit, data)
    points = [
        NumberDataPoint(sample.labels, began_ns, now_ns, sample.value) for sample in family.samples
    ]
    is_sum = family.type == "counter"
    numbers = Sum(points, cumulative, is_monotonic=True) if is_sum else Gauge(points)
    return Metric(name, family.documentation, unit, numbers)


def _histograms(family: Family, began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """The histogram of each set of labels. Prometheus' buckets contain the lower ones, OTLP's do
    not. The least and the greatest value are not known."""
    buckets: dict[Labels, list[tuple[float, int]]] = defaultdict(list)
    sums: dict[Labels, float] = {}
    for sample in family.samples:
        labels = tuple(each for each in sample.labels.items() if each[0] != "le")
        if sample.name.endswith("_bucket"):
            buckets[labels].append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, ordered in buckets.items():
        totals = [0, *(count for _, count in ordered)]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            count=totals[-1],
            sum=sums[labels],
            bucket_counts=[after - before for before, after in pairwise(totals)],
            explicit_bounds=[bound for bound, _ in ordered[:-1]],
            min=None,  # type: ignore[arg-type]  # the protocol has them as optional
            max=None,  # type: ignore[arg-type]
        )
