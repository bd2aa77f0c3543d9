"""The metrics of figures keep the rules of `promtool check metrics`, and Prometheus' own parsers
read them. The rules are those of promlint, which promtool uses."""

import re

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from schemas import catalogue
from schemas.protocol import VERDICTS
from services.console.watching import EXPORT_PORT
from services.evaluator.run.publishing import LiveFigures
from services.runtime.figure_metrics import BUCKETS_MS, FigureCounts
from services.runtime.settings import ROOT
from services.watcher.processes import WatchMetrics
from tests.documentation import blocks

pytestmark = pytest.mark.unit
# Words of a name that promlint refuses: units that are not base units, their short forms, types.
OTHER_UNITS = {
    *("milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "weeks"),
    *("kelvins", "kilobytes", "megabytes", "gigabytes", "bits", "percent", "milliamperes"),
}
ABBREVIATIONS = {*("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")}
TYPES = {"gauge", "counter", "summary", "histogram", "untyped"}
PLACE = {"pipeline": "orders", "stage": "output"}


def figures():
    """Figures of every kind."""
    counts = FigureCounts()
    head = {**PLACE, "definition": "latest", "phase": "measure"}
    counts.add(catalogue.LATENCY, head | {"latencies_ms": [-2, 4, 80_000], "counts": [1, 9, 2]})
    verdicts = dict.fromkeys(VERDICTS, 3) | {"missing": -1}
    counts.add(catalogue.VERDICTS, {**PLACE, "phase": "measure"} | verdicts)
    topic = {"topic": "shipped", "records": 7, "bytes": 70, "aborted": 1}
    counts.add(catalogue.THROUGHPUT, PLACE | topic)
    return counts


def of_a_watch():
    metrics = WatchMetrics()
    lags = [["shop", "orders", 3, 1.5, 20.0]]
    used = {"name": "shared-1", "memory_bytes": 60_000_000, "cpu_s": 7.5, "thread_s": 0.5}
    shown = {"figures": figures().saved(), "lag_ms": 1_500, "is_valid": True, "lags": lags}
    shown["process"] = used
    metrics.set("orders", shown)
    return metrics


def of_a_run():
    metrics = LiveFigures()
    metrics.begin("20260101-120000-abcd")
    head = {**PLACE, "definition": "latest", "phase": "measure"}
    metrics.add(catalogue.LATENCY, head | {"latencies_ms": [4], "counts": [9]})
    return metrics


@pytest.fixture(params=[of_a_watch, of_a_run])
def registry(request):
    result = CollectorRegistry()
    result.register(request.param())
    return result


def test_names_keep_the_rules_of_promtool(registry):
    problems = []
    for family in registry.collect():
        words = family.name.split("_")
        problems += [family.name] if not re.fullmatch(r"[a-z][a-z0-9_]*", family.name) else []
        problems += [f"{family.name}: {word}" for word in OTHER_UNITS & {*words}]
        problems += [f"{family.name}: {word}" for word in ABBREVIATIONS & {*words}]
        problems += [f"{family.name}: {word}" for word in TYPES & {*words}]
        problems += [f"{family.name}: no help"] if not family.documentation else []
        for sample in family.samples:
            is_counter, is_histogram = family.type == "counter", family.type == "histogram"
            problems += [sample.name] if sample.name.endswith("_total") != is_counter else []
            reserved = sample.name.endswith(("_bucket", "_count", "_sum"))
            problems += [sample.name] if reserved != is_histogram else []
            problems += [f"{sample.name}: {name}" for name in sample.labels if not name.islower()]
            problems += [sample.name] if "quantile" in sample.labels else []
    assert problems == []


def test_each_parser_reads_the_same_samples(registry):
    def samples(families):
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    classic = samples(prometheus(generate_latest(registry).decode()))
    assert len(classic) > len(BUCKETS_MS)
    assert samples(open_metrics(generate_open_metrics(registry).decode())) == classic


def test_a_histogram_is_cumulative_in_seconds_and_counts_every_output():
    registry = CollectorRegistry()
    registry.register(of_a_watch())
    (family,) = (each for each in registry.collect() if each.type == "histogram")
    values = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    assert (values["0.001"], values["0.005"], values["60.0"], values["+Inf"]) == (1, 10, 10, 12)
    assert values["tidegauge_output_latency_seconds_count"] == 12
    assert values["tidegauge_output_latency_seconds_sum"] == pytest.approx(160.036)


def test_a_watch_that_does_not_run_says_so_and_keeps_its_figures():
    metrics = of_a_watch()
    metrics.stop("orders")
    families = {family.name: family.samples for family in metrics.collect()}
    assert [sample.value for sample in families["tidegauge_watch_up"]] == [0]
    assert [sample.value for sample in families["tidegauge_watch_valid"]] == [1]
    metrics.keep([])
    assert {family.name for family in metrics.collect() if family.samples} == set()


def test_the_page_about_them_names_all_and_no_others():
    text = (ROOT / "docs" / "export-a-watch.md").read_text()
    families = list(of_a_watch().collect())
    shown = {each.name + ("_total" if each.type == "counter" else "") for each in families}
    samples = {sample.name for each in families for sample in each.samples}
    pushed = {"tidegauge_output_latency"}
    named = set(re.findall(r"\btidegauge_\w+", text))
    assert shown <= named
    assert named <= shown | samples | pushed


def test_the_rules_and_the_scrape_of_the_page_are_yaml():
    page = ROOT / "docs" / "export-a-watch.md"
    scrape, rules = (yaml.safe_load(text) for text in blocks(page, "yaml"))
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"localhost:{EXPORT_PORT}"]}]
    (group,) = rules["groups"]
    assert [rule["alert"] for rule in group["rules"]] == ["OutputsMissing", "WatchNotValid"]
