"""A run of a watch is a run: report, page, lists and views show its measurements."""

import html
import json
from functools import partial

import pytest
from rich.console import Console

from deploy.local.stack import StackStatus
from schemas.catalogue import LIFECYCLE
from services.console.listing import show_status
from services.console.report import compare as comparing
from services.console.report.build import build_report
from services.console.report.ci import junit, markdown
from services.console.report.html import page
from services.console.report.terminal import show_report
from services.readmodel.history import read_series
from services.readmodel.runs import latest_run, request_of
from services.readmodel.timelines import read_timelines
from services.runtime import clickhouse
from services.runtime.settings import ServiceSettings
from tests.integration.store_engine import project, store_in_process
from tests.integration.watched_run import (
    begun_events,
    copied_events,
    path_events,
    run_id,
    watch_events,
)
from tests.unit.requests import a_lifecycle_event

pytestmark = pytest.mark.integration

START_MS = 1_800_000_000_000
VERDICTS = {"exact": 4, "wrong": 0, "missing": 1, "late": 1, "duplicate": 1, "unexpected": 1}


@pytest.fixture
def ask(engine, monkeypatch):
    store_in_process(engine, monkeypatch)
    project(engine, watch_events(START_MS))
    return partial(clickhouse.query, "")


@pytest.fixture
def typed(ask):
    return build_report("", run_id(START_MS))


@pytest.fixture
def found(typed):
    return typed.as_json()


def test_a_report_says_latencies_verdicts_and_rates(found):
    cell = found["pipelines"]["orders"]["stages"]["output"]
    latest = cell["latency_ms"]["latest"]
    assert cell["verdicts"] == VERDICTS
    assert cell["outputs"] == 7
    assert (latest["count"], latest["p50"], latest["p99"], latest["max"]) == (5, 4, 250, 250)
    assert found["input"]["records"] == 6
    assert found["input"]["records_per_second"] == 6.0
    assert cell["records_per_second"] == 7.0
    assert (found["workload"], found["domain"], found["valid"]) == ("orders", "", True)
    assert found["conclusion"]["clean"] is False
    assert found["mean_bytes"] == {"input": 5, "output": 1}
    assert found["groups"] == [{"group": "shop", "topic": "orders", "max": 3, "last": 3}]


def test_a_report_says_when_readers_of_committed_records_have_its_outputs(typed, ask):
    cell = typed.pipelines["orders"].stages["output"]
    visible = cell.latency_ms["visible"]
    assert (visible.count, visible.min, visible.max, cell.aborted) == (5, 696, 700, 3)
    console = Console(record=True, width=160)
    show_report(console, typed)
    lines = read_timelines("", typed.run_id, expired=typed.seconds_expired)
    pages = (markdown(typed), page(typed, request_of("", typed.run_id), lines))
    for text in (console.export_text(), *pages):
        assert "orders output: readers of committed records have an output after p50 698" in text
        assert "3 records were aborted" in text
    (row,) = ask(
        "SELECT latest.max_ms, f.visible_p50_ms FROM tidegauge.figures AS f INNER JOIN"
        " tidegauge.latency_summary AS latest USING run_id WHERE definition = 'latest'"
    )
    assert [*row.values()] == [250, 698]
    (aborted,) = ask("SELECT sum(aborted) AS aborted FROM tidegauge.throughput_by_second")
    assert aborted == {"aborted": 3}


def test_its_thresholds_have_the_figures_of_the_report(found, ask):
    cell = found["pipelines"]["orders"]["stages"]["output"]
    rows = ask("SELECT threshold, stage, value, passed FROM tidegauge.threshold_results")
    assert [tuple(row.values()) for row in rows] == [
        ("output.p99_ms <= 100", "output", cell["latency_ms"]["latest"]["p99"], False),
        ("output.missing <= 1", "output", cell["verdicts"]["missing"], True),
        ("output.records_per_second >= 5", "output", cell["records_per_second"], True),
    ]
    assert [row["passed"] for row in found["thresholds"]] == [False, True, True]


def test_people_read_it_in_every_form(typed):
    request = request_of("", typed.run_id)
    console = Console(record=True, width=160)
    show_report(console, typed)
    lines = read_timelines("", typed.run_id, expired=typed.seconds_expired)
    for text in (console.export_text(), markdown(typed), page(typed, request, lines)):
        assert "All timestamps are LogAppendTime from one broker." in text
        assert "1 missing" in text
        assert "Values have 5 bytes per input and 1 bytes per output on average." in text
        assert "shop was at most 3 records behind on orders, 3 at the end." in text
        assert "send delay p50" not in text
        assert "All timestamps are from the broker" not in text
        assert "failed: output.p99_ms <= 100; orders output has 250" in html.unescape(text)


SECONDS = "its timestamp seems to be in seconds instead of milliseconds"


def test_timestamps_that_cannot_measure_latency_give_no_figure(engine, monkeypatch):
    store_in_process(engine, monkeypatch)
    project(engine, copied_events(START_MS))
    found, ask = build_report("", run_id(START_MS)), partial(clickhouse.query, "")
    cell = found.pipelines["orders"].stages["output"]
    assert (cell.latency_ms, cell.verdicts["exact"]) == ({}, 20)
    assert [row.passed for row in found.thresholds] == [False, True, True]
    request = request_of("", found.run_id)
    console = Console(record=True, width=160)
    show_report(console, found)
    lines = read_timelines("", found.run_id, expired=found.seconds_expired)
    for text in (console.export_text(), markdown(found), page(found, request, lines)):
        assert "20 of 20 timestamps in shipped are exactly that of the input" in text
        assert f"orders: 2 records could not be evaluated: {SECONDS} (first: partition 0" in text
        assert "resources" not in text
    assert b"its timestamps cannot measure it" in junit(found)
    (figures,) = ask("SELECT p50_ms, p99_ms, exact FROM tidegauge.figures")
    assert figures == {"p50_ms": None, "p99_ms": None, "exact": 20}
    (row,) = ask("SELECT topic, kind, reason, records, offset FROM tidegauge.not_judged")
    assert [*row.values()] == ["orders", "refused", SECONDS, 2, 20]
    (run,) = ask("SELECT timestamps FROM tidegauge.runs")
    assert "cannot measure latency" in run["timestamps"]


def test_its_hours_are_compared(found, ask):
    compared = comparing.compared(comparing.StoredRuns(""), [found["run_id"]], [found["run_id"]])
    (one,) = comparing.as_json(compared)["comparisons"]
    assert found["identity"] == {
        "watch": "orders",
        "relation": "one_to_one",
        "inputs": "orders",
        "outputs": "shipped",
    }
    missing = f"{found['run_id']}: missing outputs of orders output, which have no latency: 1"
    assert (one["before"]["pipeline"], one["also_different"]) == ("orders", [])
    assert one["doubts"] == [missing]
    assert {row["real"] for row in one["differences"]} == {False}


def test_a_ci_program_reads_its_checks(typed):
    assert b"failed: output.p99_ms &lt;= 100; orders output has 250" in junit(typed)


def test_the_latest_run_is_one_that_is_concluded_while_the_watch_goes_on(engine, ask):
    project(engine, begun_events(START_MS + 3_600_000))
    assert len(ask("SELECT * FROM tidegauge.runs")) == 2
    assert latest_run("") == run_id(START_MS)


def test_of_runs_that_are_not_concluded_it_is_the_newest(engine, monkeypatch):
    store_in_process(engine, monkeypatch)
    for hour in range(2):
        project(engine, begun_events(START_MS + 3_600_000 * hour))
    assert latest_run("") == run_id(START_MS + 3_600_000)


def test_an_hour_of_a_watch_is_not_the_current_run_of_the_status(engine, monkeypatch, capsys):
    store_in_process(engine, monkeypatch)
    status = StackStatus(True, "", "", "", services=())

    def current():
        show_status(Console(), ServiceSettings(), status, as_json=True)
        return json.loads(capsys.readouterr().out)["run"]

    project(engine, begun_events(START_MS))
    assert current() is None
    run = {"run_id": "r", "time": START_MS - 1000}
    project(engine, [(LIFECYCLE, a_lifecycle_event("run_requested", json.dumps({})) | run)])
    assert current()["run_id"] == "r"


def test_it_is_in_the_lists_and_views(ask):
    (run,) = ask("SELECT * FROM tidegauge.runs")
    assert run["timestamps"] == "All timestamps are LogAppendTime from one broker."
    assert (run["run_id"], run["workload"], run["pipelines"]) == (
        "watch-orders-20270115-080000",
        "orders",
        ["orders"],
    )
    assert (run["concluded"], run["valid"], run["clean"]) == (True, True, False)
    (figures,) = ask("SELECT pipeline, stage, p50_ms, missing, deadline_ms FROM tidegauge.figures")
    assert figures == {
        "pipeline": "orders",
        "stage": "output",
        "p50_ms": 4,
        "missing": 1,
        "deadline_ms": 100,
    }


def test_latency_is_told_by_partition_and_field(ask):
    rows = ask("SELECT dimension, value, count, p50_ms FROM tidegauge.latency_by_slice ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [
        ("header.land", "x", 5, 4),
        ("partition", "shipped-0", 5, 4),
    ]


@pytest.mark.usefixtures("ask")
def test_it_is_part_of_the_history():
    assert [(one.workload, one.metric, one.points[0].value) for one in read_series("")] == [
        ("orders", "middle_ms", 5.5),
        ("orders", "p99_ms", 250.0),
    ]


@pytest.fixture
def path(engine, monkeypatch):
    store_in_process(engine, monkeypatch)
    project(engine, path_events(START_MS))
    return build_report("", run_id(START_MS))


def test_a_report_has_the_whole_path_and_each_hop(path):
    stages = path.pipelines["orders"].stages
    faults = {
        name: (cell.verdicts["exact"], cell.verdicts["missing"], cell.verdicts["duplicate"])
        for name, cell in stages.items()
    }
    assert faults == {"whole": (2, 2, 1), "price": (3, 1, 0), "pack": (2, 1, 1)}
    longest = {name: cell.latency_ms["latest"].max for name, cell in stages.items()}
    assert longest == {"whole": 21, "price": 7, "pack": 15}
    assert path.input.records == 4
    judged = {row.threshold: (row.value, row.passed) for row in path.thresholds or ()}
    assert judged == {"pack.missing <= 0": (1, False), "price.max_ms <= 10": (7, True)}


def test_a_report_says_how_far_a_group_was_behind_in_time(path, engine):
    (lag,) = path.as_json()["groups"]
    assert lag == {
        **{"group": "shop", "topic": "orders", "max": 3, "last": 3},
        **{"max_s": 1.25, "last_s": 0.375},
    }
    console = Console(record=True, width=160)
    show_report(console, path)
    text = " ".join(console.export_text().split())
    assert (
        "The oldest record that it had to read next was at most 1.250 s old, 0.375 s at the end, "
        "and it did not catch up." in text
    )
    rows = engine.rows(
        "SELECT partition, member, records_behind, committed_offset, seconds_behind,"
        " toUnixTimestamp64Milli(next_record_at) AS next_ms, caught_up_in_s"
        " FROM tidegauge.consumer_partition_lag ORDER BY time, partition LIMIT 2"
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, "m-1", 3, 7, 1.25, START_MS - 1_250, 12.5),
        (1, "m-2", 0, 9, 0.0, None, 0.0),
    ]
    columns = "records_behind, seconds_behind, caught_up_in_s"
    rows = engine.rows(f"SELECT {columns} FROM tidegauge.consumer_lag ORDER BY time")
    assert [tuple(row.values()) for row in rows] == [(3, 1.25, 12.5), (3, 0.375, None)]
