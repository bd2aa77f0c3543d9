"""Parts of a real stack are killed with SIGKILL during a run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.breakable_stack import (
    PIPELINE,
    BreakableStack,
    breakable_stack,
    eventually,
    every_event_once,
)

pytestmark = pytest.mark.faults

KILLS = 10


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path) as found:
        yield found


def test_a_store_killed_ten_times_in_a_run_has_every_row_once(stack: BreakableStack) -> None:
    # The load outlasts the kills, which take some six seconds each, so records keep coming.
    run = stack.begin_load(rate=200, measure_s=150)
    stack.await_measuring()
    counted = "SELECT count() AS n FROM results_latency"
    for number in range(1, KILLS + 1):
        before = stack.sql(counted)
        eventually(lambda before=before: stack.sql(counted) not in ([], before), "it projects")
        stack.kill("store")
        again = {"state": "ready", "restarts": number}
        eventually(lambda again=again: stack.services()["store"].items() >= again.items(), "serves")
    report = stack.ended_clean(run)
    assert stack.restarts()["store"] == KILLS
    every_event_once(stack)
    assert json.loads(stack.tidegauge("report", report["run_id"], "--json").stdout) == report


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("generator", "generator was terminated by SIGKILL during the run."),
        ("conductor", "The conductor exited during the run."),
        ("runner", "runner was terminated by SIGKILL during the run."),
    ],
)
def test_a_run_that_loses_its_leader_or_its_load_is_invalid_and_the_next_is_not(
    stack: BreakableStack, part: str, reason: str
) -> None:
    run = stack.begin_load(measure_s=20)
    stack.await_measuring()
    stack.kill(part)
    code, report, said = stack.ended(run)
    assert (code, report["invalid_reasons"]) == (1, [reason]), said
    stack.has_clean_run()


@pytest.mark.parametrize("part", ["collector", "evaluator"])
def test_a_run_goes_on_when_what_only_watches_it_is_killed(
    stack: BreakableStack, part: str
) -> None:
    run = stack.begin_load(measure_s=20)
    stack.await_measuring()
    stack.kill(part)
    stack.ended_clean(run)
    assert stack.restarts()[part] == 1


def test_a_proxy_that_is_killed_makes_the_run_invalid_and_loses_nothing(
    stack: BreakableStack,
) -> None:
    run = stack.begin_load(PIPELINE, "--processing-time", measure_s=20)
    stack.await_measuring()
    stack.kill("evaluator")  # it counts again, with the hand-overs
    stack.kill("proxy")
    code, report, said = stack.ended(run)
    assert (code, report["valid"]) == (1, False), said
    assert any(f"The proxy of {PIPELINE} ended" in each for each in report["invalid_reasons"])
    assert all("proxy" in each for each in report["invalid_reasons"]), said
    for stage in report["pipelines"][PIPELINE]["stages"].values():
        verdicts = stage["verdicts"]
        assert {name for name, count in verdicts.items() if count} <= {"exact", "late"}, said
        timed = stage["latency_ms"]
        assert 0 < timed["processing_time"]["count"] <= timed["latest"]["count"]
        assert timed["latest"]["count"] == stage["outputs"]
        assert timed["processing_time"]["min"] >= 0
    again = stack.tidegauge("evaluate", report["run_id"])
    assert again.returncode == 0, again.stdout + again.stderr
