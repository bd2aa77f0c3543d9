"""A planted slowdown becomes a change point on the bus, at the run where it began."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import pytest

from analysis.changes.finding import all_changes
from schemas import catalogue
from schemas.commands import FindChanges
from schemas.events import Concluded, RateJudged, RunJudged, RunRequested
from schemas.protocol import RunRequest
from services.readmodel.history import published_changes, read_series
from services.runtime.clickhouse import query, store_url
from services.runtime.events import open_events
from services.runtime.settings import ROOT
from services.watcher.counting import RunTotals
from services.watcher.runs import WatchRuns
from tests.integration.service_process import Reader, running_service, started
from tests.integration.store_process import until_ready
from tests.unit.analysis.histories import noisy
from tests.unit.conductor.search_events import A_RESULT
from tests.unit.requests import a_request
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
RUNS = 20
PLANTED = 10  # the first run with the worse setting


@dataclass
class Clock:
    """The time of published events."""

    now_ms: int = BEGIN_MS

    def __call__(self):
        return self.now_ms


def publish_run(events, number, latencies_ms, rate_per_second):
    """Publish one valid run of two stages with a median latency each, and the result of a search.
    The setting is worse from PLANTED. The search's step, which was under pressure, is not part of
    the history."""
    run_id = f"planted-{number:02}"
    step = dict.fromkeys(latencies_ms, 5_000)
    publish_valid_run(events, f"{run_id}-step-01", number, step, step_of=run_id)
    publish_valid_run(events, run_id, number, latencies_ms)
    detail = A_RESULT | {"pipeline": "spark-realtime", "rate_per_second": rate_per_second}
    events.publish(RateJudged(run_id=run_id, **detail))


def publish_valid_run(events, run_id, number, latencies_ms, step_of=""):
    request = a_request().model_dump(mode="json") | {"run_id": run_id, "step_of": step_of}
    if number >= PLANTED:
        request["pipelines"][0]["trigger_interval_ms"] = 1000
    events.publish(RunRequested(run_id=run_id, request=RunRequest.model_validate(request)))
    for stage, latency_ms in latencies_ms.items():
        events.publish_figures(
            catalogue.LATENCY,
            run_id,
            pipeline="spark-realtime",
            stage=stage,
            definition="latest",
            phase="measure",
            second=events.clock.now_ms,
            latencies_ms=[int(latency_ms) - 1, int(latency_ms), int(latency_ms) + 1],
            counts=[100, 200, 100],
        )
    events.publish(RunJudged(run_id=run_id, clean=True))
    events.publish(Concluded(run_id=run_id, valid=True, clean=True))


def look(settings, run_id):
    """Search for changes once the store knows a run, and publish new ones."""
    done = subprocess.run(
        [sys.executable, "-m", "services.conductor.suites.analysis", run_id],
        cwd=ROOT,
        env=os.environ
        | {
            "TIDEGAUGE_BASE_PORT": str(settings.base_port),
            "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
            "TIDEGAUGE_DATA": str(settings.data),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_planted_slowdown_is_told_once_with_its_place_and_cause(broker, tmp_path):
    settings = broker.model_copy(update={"data": tmp_path})
    clock = Clock()
    events = open_events(settings, "tests")
    events._clock = events.clock = clock
    join = noisy(1, PLANTED, 120) + noisy(2, RUNS - PLANTED, 180)
    parse = noisy(3, RUNS, 40)
    rates = noisy(4, PLANTED, 5_000) + noisy(5, RUNS - PLANTED, 3_000)
    with running_service(settings, "store", tmp_path) as store:
        until_ready(settings, store)
        for number in range(RUNS):
            clock.now_ms = BEGIN_MS + number * HOUR_MS
            latencies_ms = {"parse": parse[number], "join": join[number]}
            publish_run(events, number, latencies_ms, rates[number])
        events.flush()

        last = f"planted-{RUNS - 1:02}"
        look(settings, last)
        conclusions = Reader(settings, catalogue.CONCLUSIONS)
        told = conclusions.until(f"planted-{PLANTED}", lambda records: len(records) == 5)
        conclusions.close()
        kinds = ["run", "sustainable_throughput", *["change_point"] * 3]
        assert [record["kind"] for record in told] == kinds
        # All figures of the join and the rate, with the first run that had the setting; the latency
        # of parse is unaffected.
        found = [json.loads(one["detail"]) for one in told if one["kind"] == "change_point"]
        assert {(one["stage"], one["metric"]) for one in found} == {
            ("join", "middle_ms"),
            ("join", "p99_ms"),
            ("parse", "sustainable_rate_per_second"),
        }
        assert {one["first_run_after"] for one in found} == {f"planted-{PLANTED}"}
        assert all(one["worse"] for one in found)
        assert {tuple(one["likely_causes"]) for one in found} == {
            ("pipelines.trigger_interval_ms: 0 → 1000",)
        }

        until_projected(settings, 3)
        changes = all_changes(*history_of(settings))
        assert [new for change, new in changes if planted(change)] == [False] * 3


def history_of(settings):
    url = store_url(settings)
    return read_series(url), published_changes(url)


def test_a_slower_watch_is_told_after_its_run_without_a_suite(broker, tmp_path):
    settings = broker.model_copy(update={"data": tmp_path})
    clock = Clock()
    events = open_events(settings, "watch-slower")
    events._clock = clock
    runs = WatchRuns(a_watch(name="slower", begin="earliest"), {})
    first = BEGIN_MS // HOUR_MS
    latencies = noisy(1, PLANTED, 120) + noisy(2, RUNS - PLANTED, 180)
    conclusions = Reader(settings, catalogue.CONCLUSIONS)
    with (
        running_service(settings, "store", tmp_path) as store,
        running_service(settings, "conductor", tmp_path, TIDEGAUGE_INSTANCE="changes"),
    ):
        until_ready(settings, store)
        lifecycle = Reader(settings, catalogue.LIFECYCLE)
        lifecycle.until("", started("changes"))
        lifecycle.close()
        for number, latency_ms in enumerate(latencies):
            clock.now_ms = BEGIN_MS + number * HOUR_MS
            publish_hour(events, runs, first + number, int(latency_ms))
        events.send(FindChanges(run_id=runs.id_of(first + RUNS - 1)))
        slower = runs.id_of(first + PLANTED)
        told = conclusions.until(slower, lambda records: len(records) == 3)
    conclusions.close()
    found = [json.loads(one["detail"]) for one in told if one["kind"] == "change_point"]
    assert [one["metric"] for one in found] == ["middle_ms", "p99_ms"]
    assert {(one["workload"], one["stage"]) for one in found} == {("slower", "output")}
    assert all(one["worse"] for one in found)


def publish_hour(events, runs, run, latency_ms):
    """Publish a run of a watch whose outputs have about one latency, by the watcher's own code."""
    totals = RunTotals(Counter(exact=400), 400, 400)
    second = 1000 * run * runs.watch.run_s
    where = {"pipeline": runs.watch.name, "stage": runs.watch.stage, "second": second}
    for event in runs.begin(run):
        events.publish(event)
    events.publish_figures(
        catalogue.LATENCY,
        runs.id_of(run),
        **where,
        definition="latest",
        phase="measure",
        latencies_ms=[latency_ms - 1, latency_ms, latency_ms + 1],
        counts=[100, 200, 100],
    )
    for event in runs.conclude(run, totals, (0, second + HOUR_MS), {}):
        events.publish(event)


def planted(change):
    return change.first_run_id.startswith("planted-")


def until_projected(settings, count):
    """Wait until the view shows the change points."""
    asked = "SELECT run_id, stage, after FROM tidegauge.change_points WHERE run_id LIKE 'planted%'"
    for _ in range(300):
        rows = query(store_url(settings), asked + " AND sleep(0.1) = 0")
        if len(rows) == count:
            assert {row["stage"] for row in rows} == {"join", "parse"}
            return
    raise AssertionError(f"only {rows} in change_points")
