"""Queries of the whole history: a suite's last good runs, the newest runs for change points."""

import json

import pytest

from schemas import catalogue
from schemas.load import SingleBurst, Together
from schemas.suite import SuiteRun
from services.readmodel import history
from services.store.engine import Query
from tests.integration.recorded_run import recorded, run_of
from tests.integration.store_engine import project
from tests.traffic import TRAFFIC
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.integration

BEGIN_MS = 1_790_000_000_000
PIPELINE = "spark-realtime"
MACHINE = {"processor": "an example", "cores": 2}


def a_run(
    number,
    *,
    suite="nightly",
    rate=400.0,
    share=None,
    cores=2,
    valid=True,
    passed=True,
    step_of="",
    steady=True,
    disturbed=False,
    of=None,
):
    """A concluded run with one latency and one threshold, ten seconds after the previous one."""
    run_id, at_ms = f"r{number}", BEGIN_MS + 10_000 * number
    request = (of or a_request()).model_dump(mode="json") | {"run_id": run_id, "step_of": step_of}
    request["suite"] = {"name": suite, "round": 1, "step": 1}
    if "rate_per_second" in request["workload"]["load"]:
        request["workload"]["load"]["rate_per_second"] = rate
    request["workload"]["sustainable_share"] = share
    request["environment"] = MACHINE | {"cores": cores}
    row = {"threshold": "t", "pipeline": PIPELINE, "stage": "parse", "value": 2, "limit": 1}
    detail = {"clean": True, "thresholds": [row | {"passed": passed}]}
    detail |= {"warm_up": {"steady": steady}, "disturbed": disturbed, "late": {}}
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


def step(**changes):
    """A request with changes to load, phases or the request itself."""
    request = a_request()
    workload = request.workload
    load = changes.pop("load", workload.load)
    phases = workload.phases.model_copy(update=changes.pop("phases", {}))
    workload = workload.model_copy(update={"name": "steps", "load": load, "phases": phases})
    return request.model_copy(update={"workload": workload, **changes})


# Steps of one suite with the same workload, rate and pipelines.
BURST = SingleBurst(rate_per_second=400, burst_records=5)
STEPS = (
    step(),
    step(load=BURST.with_bursts(200)),
    step(load=Together(parts=(BURST, BURST))),
    step(phases={"measure_s": 60}),
    step(stages=("parse", "join")),
    step(domain=TRAFFIC.model_copy(update={"name": "streets"})),
)


@pytest.fixture(scope="module")
def ask(module_engine):
    runs = [
        *(a_run(number - 10, suite="steps", of=one) for number, one in enumerate(STEPS)),
        a_run(1),
        a_run(2),
        a_run(3, rate=500.0),
        a_run(4, valid=False),
        a_run(5, passed=False),
        a_run(6, step_of="r2"),
        a_run(7, suite="other"),
        a_run(8, suite="other", cores=4),
        a_run(9, suite="other", steady=False),
        a_run(10, suite="other", disturbed=True),
        a_run(11, suite="noisy", disturbed=True),
        a_run(12, suite="shares", rate=900.0, share=0.9),
        a_run(13, suite="shares", rate=950.0, share=0.9),
    ]
    project(module_engine, [event for run in runs for event in run])

    def query(_url, sql, **parameters):
        answer = module_engine.answer(Query(sql, "JSONEachRow", parameters=parameters))
        return [json.loads(line) for line in answer.data.decode().splitlines()]

    return query


@pytest.mark.parametrize(
    ("suite", "rate", "share", "run_ids"),
    [
        ("nightly", 400.0, None, ["r2", "r1"]),
        ("nightly", 500.0, None, ["r3"]),
        ("other", 400.0, None, ["r7"]),  # not those of another machine, unsteady or disturbed
        ("noisy", 400.0, None, ["r11"]),  # there is no other
        ("shares", 990.0, 0.9, ["r13", "r12"]),  # at the same share of another sustainable rate
        ("shares", 950.0, None, []),
        ("new", 400.0, None, []),
    ],
)
def test_the_last_good_runs_are_valid_alike_and_kept_their_thresholds(
    ask, suite, rate, share, run_ids
):
    request = a_request()
    workload = request.workload.at_rate(rate).model_copy(update={"sustainable_share": share})
    changes = {"suite": SuiteRun(name=suite, round=9, step=1), "workload": workload}
    request = request.model_copy(update=changes | {"environment": MACHINE})
    assert history.last_good_runs(request, "", ask) == run_ids


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_other_steps_of_a_suite_are_not_a_baseline(ask, number):
    changes = {"suite": SuiteRun(name="steps", round=9, step=1), "environment": MACHINE}
    request = STEPS[number].model_copy(update=changes)
    assert history.last_good_runs(request, "", ask) == [f"r{number - 10}"]


def test_only_the_newest_runs_are_looked_at(ask):
    newest = {"r11", "r12", "r13"}
    three, all_ = {"each": "9", "most": "3"}, {"each": "9", "most": "99"}
    assert [row["run_id"] for row in ask("", history.RUNS, **three)] == sorted(newest)
    assert {row["run_id"] for row in ask("", history.FIGURES, **three)} == newest
    every = {f"r{number}" for number in (*range(-10, -4), 1, 2, 3, 5, *range(7, 14))}
    assert {row["run_id"] for row in ask("", history.FIGURES, **all_)} == every
    assert ask("", history.RATES, **three) == ask("", history.USAGE, **three) == []


def test_runs_of_one_load_do_not_displace_those_of_another(ask):
    found = {row["run_id"] for row in ask("", history.FIGURES, each="1", most="99")}
    assert found == {"r-8", "r-6", "r-5", "r3", "r11", "r13"}


def test_the_cpu_time_of_the_generator_is_per_record_of_the_whole_run(module_engine, ask):
    events = recorded()  # of a later day than the others
    project(module_engine, events)
    (row,) = ask("", history.USAGE, each="9", most="1")
    of_run = [(topic, one) for topic, one in events if one["run_id"] == run_of(events)]
    cpu_s = sum(one["cpu_seconds"] for _, one in of_run if one.get("service") == "generator")
    records = sum(one["acknowledged"] for topic, one in of_run if topic == catalogue.GENERATOR)
    assert row["generator_us"] == pytest.approx(1e6 * cpu_s / records)
