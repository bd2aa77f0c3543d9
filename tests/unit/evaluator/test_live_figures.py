"""The figures of a run as Prometheus metrics, read as Prometheus' own client library reads them."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from schemas import catalogue
from schemas.protocol import VERDICTS
from services.evaluator.run.publishing import LiveFigures

pytestmark = pytest.mark.unit

OF_STAGE = {"pipeline": "p", "stage": "join", "phase": "measure", "second": 1_000}


def scraped(live):
    """Values by name and labels."""
    registry = CollectorRegistry()
    registry.register(live)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of(samples, name, **labels):
    """Values of a name by the remaining labels."""
    return {
        tuple(value for key, value in rest if key not in labels): number
        for (found, *rest), number in samples.items()
        if found == name and labels.items() <= dict(rest).items()
    }


def latencies(live, counts, definition="latest"):
    fields = {"latencies_ms": [*counts], "counts": [*counts.values()]}
    live.add(catalogue.LATENCY, OF_STAGE | {"definition": definition} | fields)


def verdicts(live, **counts):
    live.add(catalogue.VERDICTS, OF_STAGE | dict.fromkeys(VERDICTS, 0) | counts)


def test_latencies_are_a_histogram_in_seconds():
    live = LiveFigures()
    latencies(live, {-3: 1, 1: 2, 4: 5, 61_000: 1})
    latencies(live, {4: 1, 60_000: 1})
    latencies(live, {7: 1}, "visible")
    samples = scraped(live)
    buckets = of(samples, "tidegauge_output_latency_seconds_bucket", definition="latest")
    by_bound = {bound: count for (bound, *_rest), count in buckets.items()}
    assert by_bound["0.001"] == 3
    assert by_bound["0.003"] == 3
    assert by_bound["0.005"] == 9
    assert by_bound["30.0"] == 9
    assert by_bound["60.0"] == 10
    assert by_bound["+Inf"] == 11
    (count,) = of(samples, "tidegauge_output_latency_seconds_count", definition="latest").values()
    (total,) = of(samples, "tidegauge_output_latency_seconds_sum", definition="latest").values()
    assert (count, total) == (11, pytest.approx(0.002 + 0.024 + 121))


def test_a_verdict_that_is_taken_back_is_counted_as_retracted_and_no_counter_falls():
    live = LiveFigures()
    verdicts(live, exact=4, missing=2)
    verdicts(live, missing=-1, late=1)
    samples = scraped(live)
    labels = {"pipeline": "p", "stage": "join", "phase": "measure"}
    assert of(samples, "tidegauge_verdicts_total", **labels) == {
        ("exact",): 4,
        ("missing",): 2,
        ("late",): 1,
    }
    assert of(samples, "tidegauge_verdicts_retracted_total", **labels) == {("missing",): 1}


def test_records_are_counted_by_topic():
    live = LiveFigures()
    where = {"topic": "output.p.join", "pipeline": "p", "stage": "join"}
    for second in (1_000, 2_000):
        counts = {"second": second, "records": 3, "bytes": 30, "aborted": 1}
        live.add(catalogue.THROUGHPUT, where | counts)
    samples = scraped(live)
    names = [f"tidegauge_topic_{name}_total" for name in ("records", "bytes", "aborted")]
    assert [of(samples, name, **where) for name in names] == [{(): 6}, {(): 60}, {(): 2}]


def test_a_run_begins_at_nothing_and_is_named():
    live = LiveFigures()
    assert of(scraped(live), "tidegauge_run_info") == {}
    live.begin("r1")
    verdicts(live, exact=4)
    live.begin("r2")
    samples = scraped(live)
    assert of(samples, "tidegauge_run_info") == {("r2",): 1}
    assert len(samples) == 1
