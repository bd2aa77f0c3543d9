"""Queries of the whole history: the last good run of a suite, the newest runs for change points."""

import json

import pytest

from analysis.changes import series
from schemas import catalogue
from schemas.suite import SuiteRun
from services.conductor.suites import baselines
from services.store.engine import Query
from tests.integration.store_engine import project
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.integration

BEGIN_MS = 1_790_000_000_000
PIPELINE = "spark-realtime"


def a_run(number, *, suite="nightly", rate=400.0, valid=True, passed=True, step_of=""):
    """A concluded run with one latency and one threshold, ten seconds after the previous one."""
    run_id, at_ms = f"r{number}", BEGIN_MS + 10_000 * number
    request = a_request().model_dump(mode="json") | {"run_id": run_id, "step_of": step_of}
    request["suite"] = {"name": suite, "round": 1, "step": 1}
    request["workload"]["load"]["rate_per_second"] = rate
    row = {"threshold": "t", "pipeline": PIPELINE, "stage": "parse", "value": 2, "limit": 1}
    detail = {"clean": True, "thresholds": [row | {"passed": passed}]}
    concluded = json.dumps({"valid": valid, "clean": True, "invalid_reasons": []})
    head = {"run_id": run_id, "time": at_ms, "producer": "tests"}
    yield catalogue.LIFECYCLE, a_lifecycle_event("run_requested", json.dumps(request)) | head
    yield catalogue.LIFECYCLE, a_lifecycle_event("concluded", concluded) | head
    yield (
        catalogue.CONCLUSIONS,
        head | {"kind": "run", "valid": valid, "invalid_reasons": [], "detail": json.dumps(detail)},
    )
    yield (
        catalogue.LATENCY,
        head
        | {"pipeline": PIPELINE, "stage": "parse", "definition": "latest", "phase": "measure"}
        | {"second": at_ms, "latencies_ms": [5, 6], "counts": [10, 20]},
    )


@pytest.fixture(scope="module")
def ask(module_engine):
    runs = [
        a_run(1),
        a_run(2),
        a_run(3, rate=500.0),
        a_run(4, valid=False),
        a_run(5, passed=False),
        a_run(6, step_of="r2"),
        a_run(7, suite="other"),
    ]
    project(module_engine, [event for run in runs for event in run])

    def query(_url, sql, **parameters):
        answer = module_engine.answer(Query(sql, "JSONEachRow", parameters=parameters))
        return [json.loads(line) for line in answer.data.decode().splitlines()]

    return query


@pytest.mark.parametrize(
    ("suite", "rate", "run_id"),
    [
        ("nightly", 400.0, "r2"),
        ("nightly", 500.0, "r3"),
        ("other", 400.0, "r7"),
        ("new", 400.0, ""),
    ],
)
def test_the_last_good_run_is_valid_alike_and_kept_its_thresholds(
    ask, monkeypatch, suite, rate, run_id
):
    monkeypatch.setattr(baselines, "query", ask)
    request = a_request()
    workload = request.workload.at_rate(rate)
    changes = {"suite": SuiteRun(name=suite, round=9, step=1), "workload": workload}
    assert baselines.last_good_run(request.model_copy(update=changes), "") == run_id


def test_only_the_newest_runs_are_looked_at(ask):
    newest = {"r3", "r5", "r7"}
    assert [row["run_id"] for row in ask("", series.RUNS, most="3")] == sorted(newest)
    assert {row["run_id"] for row in ask("", series.FIGURES, most="3")} == newest
    assert {row["run_id"] for row in ask("", series.FIGURES, most="9")} == newest | {"r1", "r2"}
    assert ask("", series.RATES, most="3") == ask("", series.USAGE, most="3") == []
