"""A planted slowdown becomes a change point on the bus, at the run where it began."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from schemas import catalogue, protocol
from services.runtime.clickhouse import query, store_url
from services.runtime.events import open_events
from services.runtime.settings import ROOT
from tests.integration.service_process import Reader, running_service
from tests.integration.store_process import until_ready
from tests.unit.analysis.histories import noisy
from tests.unit.conductor.search_events import A_RESULT
from tests.unit.requests import a_request

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
    events.conclusion("sustainable_throughput", run_id, (), detail)


def publish_valid_run(events, run_id, number, latencies_ms, step_of=""):
    request = a_request().model_dump(mode="json") | {"run_id": run_id, "step_of": step_of}
    if number >= PLANTED:
        request["pipelines"][0]["trigger_interval_ms"] = 1000
    events.lifecycle(protocol.RUN_REQUESTED, run_id, detail=request)
    for stage, latency_ms in latencies_ms.items():
        events.publish(
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
    conclusion = {"kind": "run", "valid": True, "invalid_reasons": []}
    events.publish(catalogue.CONCLUSIONS, run_id, detail='{"clean": true}', **conclusion)
    events.lifecycle(protocol.CONCLUDED, run_id, detail={"valid": True, "clean": True})


def look(settings, *options):
    done = subprocess.run(
        [sys.executable, "-m", "analysis.changes", *options],
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
    return [json.loads(line) for line in done.stdout.splitlines()]


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
        found = [one for one in look(settings, "--publish", "--after", last) if planted(one)]
        # All figures of the join and the rate, with the first run that had the setting; the latency
        # of parse is unaffected.
        assert {(one["stage"], one["metric"]) for one in found} == {
            ("join", "mean_ms"),
            ("join", "p50_ms"),
            ("join", "p99_ms"),
            ("parse", "sustainable_rate_per_second"),
        }
        assert {one["first_run_after"] for one in found} == {f"planted-{PLANTED}"}
        assert all(one["worse"] and one["new"] for one in found)
        assert {tuple(one["likely_causes"]) for one in found} == {
            ("pipelines.trigger_interval_ms: 0 → 1000",)
        }

        conclusions = Reader(settings, catalogue.CONCLUSIONS)
        told = conclusions.until(f"planted-{PLANTED}", lambda records: len(records) == 6)
        conclusions.close()
        kinds = ["run", "sustainable_throughput", *["change_point"] * 4]
        assert [record["kind"] for record in told] == kinds

        until_projected(settings, 4)
        again = [one for one in look(settings, "--publish") if planted(one)]
        assert [one["new"] for one in again] == [False] * 4


def planted(change):
    return change["first_run_after"].startswith("planted-")


def until_projected(settings, count):
    """Wait until the view shows the change points."""
    asked = "SELECT run_id, stage, after FROM tidegauge.change_points WHERE run_id LIKE 'planted%'"
    for _ in range(300):
        rows = query(store_url(settings), asked + " AND sleep(0.1) = 0")
        if len(rows) == count:
            assert {row["stage"] for row in rows} == {"join", "parse"}
            return
    raise AssertionError(f"only {rows} in change_points")
