"""Figures of events as Prometheus metrics: latencies, verdicts, records.

They are those of the published events, as counters since whoever counts them began. A verdict that
is taken back is not subtracted, because a counter never falls: it is counted as retracted.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from schemas import catalogue
from schemas.protocol import VERDICTS

BUCKETS_MS: Final = (
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
    *(1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 60_000),
)
LATENCY: Final = ("pipeline", "stage", "definition", "phase")
VERDICT: Final = ("pipeline", "stage", "phase", "verdict")
TOPIC: Final = ("topic", "pipeline", "stage")
# Counters by name: title and labels.
COUNTED: Final = {
    "verdicts": ("Outputs that got a verdict", VERDICT),
    "verdicts_retracted": ("Outputs whose verdict was taken back", VERDICT),
    "topic_records": ("Records, by topic", TOPIC),
    "topic_bytes": ("Bytes of the values of records, by topic", TOPIC),
    "topic_aborted": ("Records of aborted transactions, by topic", TOPIC),
}
Labels = tuple[str, ...]


class FigureCounts:
    """Counts of the fields of events, of bounded size: by their stages and topics."""

    def __init__(self) -> None:
        self.latencies: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_MS) + 1))
        self.sums_ms: Counter[Labels] = Counter()
        self.counters: dict[str, Counter[Labels]] = {name: Counter() for name in COUNTED}

    def add(self, topic: str, fields: dict[str, Any]) -> None:
        """Add the fields of an event of a topic; those without such figures are ignored."""
        if topic == catalogue.LATENCY:
            self._add_latencies(fields)
        elif topic == catalogue.VERDICTS:
            self._add_verdicts(fields)
        elif topic == catalogue.THROUGHPUT:
            labels = tuple(fields[name] for name in TOPIC)
            for name in ("records", "bytes", "aborted"):
                self.counters[f"topic_{name}"][labels] += fields[name]

    def mean_bytes(self, is_input: bool) -> float | None:
        """Mean size of the values of input or output records; None without any."""
        records, bytes_ = (
            sum(
                count
                for (_, pipeline, _), count in self.counters[name].items()
                if is_input == (not pipeline)
            )
            for name in ("topic_records", "topic_bytes")
        )
        return bytes_ / records if records else None

    def saved(self) -> dict[str, Any]:
        """As JSON types, for `restored`."""
        return {
            "latencies": [*self.latencies.items()],
            "sums_ms": [*self.sums_ms.items()],
            "counters": {name: [*counts.items()] for name, counts in self.counters.items()},
        }

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "FigureCounts":
        """The same from what was saved."""
        result = cls()
        result.latencies.update({tuple(labels): each for labels, each in saved["latencies"]})
        result.sums_ms.update({tuple(labels): each for labels, each in saved["sums_ms"]})
        for name, rows in saved["counters"].items():
            result.counters[name].update({tuple(labels): count for labels, count in rows})
        return result

    def _add_latencies(self, fields: dict[str, Any]) -> None:
        labels = tuple(fields[name] for name in LATENCY)
        buckets = self.latencies[labels]
        for latency_ms, count in zip(fields["latencies_ms"], fields["counts"], strict=True):
            buckets[bisect_left(BUCKETS_MS, latency_ms)] += count
            self.sums_ms[labels] += max(0, latency_ms) * count  # a sum of a histogram never falls

    def _add_verdicts(self, fields: dict[str, Any]) -> None:
        for verdict in VERDICTS:
            labels = (fields["pipeline"], fields["stage"], fields["phase"], verdict)
            count = fields[verdict]
            if count > 0:
                self.counters["verdicts"][labels] += count
            elif count:
                self.counters["verdicts_retracted"][labels] -= count


def families(counts: Mapping[Labels, FigureCounts], names: Labels = ()) -> list[Metric]:
    """The metrics of these counts. names: of the labels by which they are given, before those of
    the figures."""
    histogram = HistogramMetricFamily(
        "tidegauge_output_latency_seconds",
        "Latency of first outputs, by definition; negative ones are in the lowest bucket",
        labels=names + LATENCY,
    )
    counters = {
        name: CounterMetricFamily(f"tidegauge_{name}", title, labels=names + labels)
        for name, (title, labels) in COUNTED.items()
    }
    bounds = [*(str(ms / 1000) for ms in BUCKETS_MS), "+Inf"]
    for of, each in sorted(counts.items()):
        for labels, numbers in sorted(each.latencies.items()):
            buckets = list(zip(bounds, accumulate(numbers), strict=True))
            histogram.add_metric(of + labels, buckets, each.sums_ms[labels] / 1000)
        for name, family in counters.items():
            for labels, count in sorted(each.counters[name].items()):
                family.add_metric(of + labels, count)
    return [histogram, *counters.values()]
