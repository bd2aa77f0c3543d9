"""Figures of engines: ratios to the floor, intervals over rounds, the table and the picture."""

import pytest

from tests.benchmarks import _engines_page as pages
from tests.benchmarks.engines import Asked, Found, note_run, ratios_of
from tests.documentation import replaced

pytestmark = pytest.mark.unit

FIGURES = {
    "toy_join_p50_ms": 2.0,
    "toy_join_p95_ms": 3.0,
    "toy_join_p99_ms": 5.0,
    "toy_join_records_per_second": 25_000.0,
    "toy_join_core_s_per_million": 33.0,
    "toy_start_s": 0.21,
    "toy_peak_memory_mb": 31.4,
    "big-engine_join_p50_ms": 4.0,
    "big-engine_join_p95_ms": 6.0,
    "big-engine_join_p99_ms": 20.0,
    "big-engine_join_records_per_second": 100_000.0,
}
MACHINE = {"processor": "Z80", "cores": 2, "memory_bytes": 8e9}


def test_a_ratio_above_one_is_better_than_the_floor():
    assert ratios_of(FIGURES) == {
        "big-engine_to_floor_join_p50": 0.5,
        "big-engine_to_floor_join_p95": 0.5,
        "big-engine_to_floor_join_p99": 0.25,
        "big-engine_to_floor_join_records_per_second": 4.0,
    }


def test_a_figure_that_a_heap_limited_is_marked_and_in_no_ratio():
    figures = FIGURES | {"big-engine_join_heap_limited_runs": 1.0}
    assert set(ratios_of(figures)) == {
        f"big-engine_to_floor_join_{one}" for one in ("p50", "p95", "p99")
    }
    line = next(one for one in pages.table(figures, MACHINE).splitlines() if "big-eng" in one)
    assert "| 100 ² |" in line
    assert "heap of its JVM" in pages.table(figures, MACHINE)


def test_a_pipeline_whose_runs_a_heap_limited_is_not_ranked():
    figures = FIGURES | {"toy_heap_limited_runs": 1.0}
    assert set(ratios_of(figures)) == {"big-engine_to_floor_join_records_per_second"}
    assert pages.pipelines(figures) == ["big-engine", "toy"]
    assert "2 / 3 / 5 ² |" in pages.table(figures, MACHINE)


def test_a_rate_from_a_larger_backlog_is_compared_with_the_usual_one():
    figures = FIGURES | {"big-engine_join_large_records_per_second": 80_000.0}
    assert ratios_of(figures)["big-engine_large_to_usual_join"] == 0.8
    limited = figures | {"big-engine_join_large_heap_limited_runs": 1.0}
    assert ratios_of(limited) == ratios_of(FIGURES)
    assert "| join, k/s | join, large, k/s |" in pages.table(figures, MACHINE)
    assert "| 100 | 80 |" in pages.table(figures, MACHINE)
    assert "| 100 | 80 ² |" in pages.table(limited, MACHINE)


def test_real_time_spark_is_also_compared_with_its_peers():
    latencies = {"spark-realtime": 4.0, "flink": 8.0, "kafka-streams": 2.0, "storm": 1.0}
    figures = {f"{name}_join_p99_ms": value for name, value in latencies.items()}
    assert ratios_of(figures | {"toy_join_p99_ms": 4.0}) == {
        "spark-realtime_to_floor_join_p99": 1.0,
        "spark-realtime_to_flink_join_p99": 2.0,
        "spark-realtime_to_kafka-streams_join_p99": 0.5,
        "flink_to_floor_join_p99": 0.5,
        "kafka-streams_to_floor_join_p99": 2.0,
        "storm_to_floor_join_p99": 4.0,
    }


def test_a_figure_is_the_median_of_its_rounds_with_an_interval_and_one_round_has_its_runs():
    found = Found()
    for value in (3, 1, 2):
        found.note("x_join_p50_ms", value)
    found.intervals["x_join_p50_ms"] = (1.5, 2.5)
    found.note("x_join_p99_ms", 5)
    found.intervals["x_join_p99_ms"] = (4.5, 5.5)
    found.note("x_start_s", 7)
    found.note("x_start_s", None)
    assert found.figures() == {
        "x_join_p50_ms": 2.0,
        "x_join_p50_ms_low": 1.0,
        "x_join_p50_ms_high": 3.0,
        "x_join_p99_ms": 5.0,
        "x_join_p99_ms_low": 4.5,
        "x_join_p99_ms_high": 5.5,
        "x_start_s": 7.0,
    }


def test_each_round_begins_with_another_pipeline():
    asked = Asked({"a": "a", "b": "b", "c": "c"}, ("join",), 3, 1, 1, 1, 0)
    assert [asked.of_round(number) for number in (0, 1, 3)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["a", "b", "c"],
    ]


def test_the_table_has_a_row_for_each_pipeline_the_fastest_first():
    assert pages.table(FIGURES, MACHINE).splitlines() == [
        "| pipeline | join, ms | join, k/s | core-s per million | start, s | memory, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| `toy` | 2 / 3 / 5 | 25 | 33 | 0.21 | 31.4 |",
        "| `big-engine` | 4 / 6 / 20 | 100 |  |  |  |",
        "",
        "Measured on: Z80, 2 cores, 8 GB.",
    ]


def test_latencies_of_runs_that_were_not_steady_or_were_disturbed_are_marked():
    found = Found()
    cell = {"latency_ms": {"latest": {"p50": 2, "p95": 3, "p99": 5}}}
    run = {"run_id": "a", "valid": True, "input": {}}
    report = run | {"pipelines": {"toy": {"stages": {"join": cell}, "resources": {}}}}
    for name, doubt in (("toy", {"steady": False}), ("other", {"steady": True})):
        note_run(found, name, report)
        note_run(found, name, report | doubt)
    figures = found.figures()
    assert figures["toy_doubtful_runs"] == 1
    lines = pages.table(figures, MACHINE).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:4]] == ["2 / 3 / 5", "2 / 3 / 5 ¹"]
    assert lines[-1].startswith("¹ Runs of this pipeline were not steady or were disturbed. ")


def test_the_picture_names_every_pipeline_and_stage():
    text = str(pages.picture(FIGURES))
    assert [name in text for name in (">toy<", ">big-engine<", ">join<")] == [True] * 3
    assert text.count("<circle") == 2 + 1  # and one in the legend


def test_only_what_is_between_the_marks_is_replaced():
    page = "a\n<!-- t -->\nold\n<!-- /t -->\nb\n"
    assert replaced(page, "t", "new") == "a\n<!-- t -->\nnew\n<!-- /t -->\nb\n"
    with pytest.raises(ValueError, match="no marks"):
        replaced(page, "other", "new")
