"""The conductor's conclusions from the death of a part or of a pipeline."""

import json

import pytest

from schemas.events import (
    Failed,
    PartDown,
    PipelineDown,
    Ready,
    ServiceStarted,
    StartAgain,
    event_of,
)
from services.conductor.run_state import RunState
from services.conductor.run_verdict import conclude
from tests.unit.conductor.good_run import a_good_run, drain, lifecycle
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.unit


def test_what_a_restarted_pipeline_is_missing_may_still_come() -> None:
    state = a_good_run()
    drain(state, missing=3)
    assert not state.may_still_come()
    lifecycle(state, PipelineDown.name, pipeline="spark-realtime")
    assert state.may_still_come()
    state.forget_drained()
    assert state.drained is None
    drain(state)
    assert not state.may_still_come()
    assert conclude(state).clean


def test_a_pipeline_that_is_started_again_is_not_ready_and_the_conclusion_tells_why() -> None:
    state = a_good_run()
    name = "pipeline:spark-realtime"
    lifecycle(state, Ready.name, pipeline="spark-realtime")
    for number in (2, 3):
        detail = json.dumps({"reason": f"timed out {number}", "try": number})
        lifecycle(state, StartAgain.name, pipeline="spark-realtime", detail=detail)
    assert name not in state.ready
    lifecycle(state, Ready.name, pipeline="spark-realtime")
    assert name in state.ready
    drain(state)
    found = conclude(state)
    assert found.clean
    assert found.detail["starts_again"] == {
        "spark-realtime": {"times": 2, "reason": "timed out 3"},
    }


def died(part: str) -> dict[str, object]:
    detail = json.dumps({"part": part, "reason": f"{part} was terminated by SIGKILL", "restart": 1})
    return a_lifecycle_event(PartDown.name, detail) | {"run_id": "", "producer": "stack"}


def was_started(service: str) -> dict[str, object]:
    event = a_lifecycle_event(ServiceStarted.name)
    return event | {"run_id": "", "producer": service}


def test_a_run_whose_broker_died_says_so_where_it_has_suffered() -> None:
    state = a_good_run()
    state.add(event_of("results.lifecycle", died("kafka")))
    assert conclude(state).valid
    state.failure = "the generator did not finish the load"
    assert conclude(state).reasons == (
        "the generator did not finish the load.",
        "kafka was terminated by SIGKILL during the run.",
    )


@pytest.mark.parametrize(
    ("transport", "failure"),
    [("kafka", ""), ("tcp", "gateway was terminated by SIGKILL during the run")],
)
def test_only_a_run_that_uses_the_gateway_needs_it(transport: str, failure: str) -> None:
    request = a_request()
    workload = request.workload.model_copy(update={"transport": transport})
    state = RunState(request.model_copy(update={"workload": workload}))
    state.add(event_of("results.lifecycle", died("gateway")))
    assert state.failure == failure


@pytest.mark.parametrize("part", ["generator", "runner"])
def test_a_run_cannot_go_on_without_what_makes_its_records(part: str) -> None:
    state = RunState(a_request())
    state.add(event_of("results.lifecycle", died(part)))
    assert conclude(state).reasons == (f"{part} was terminated by SIGKILL during the run.",)


def test_nobody_waits_for_the_drivers_of_an_agent_that_died() -> None:
    state = RunState(a_request("one", "two"))
    assert state.missing_stopped() == ["pipeline:one", "pipeline:two"]
    state.add(event_of("results.lifecycle", died("runner")))
    assert state.missing_stopped() == []


@pytest.mark.parametrize("part", ["store", "collector", "evaluator", "kafka"])
def test_a_run_goes_on_when_a_part_dies_that_goes_on_where_it_was(part: str) -> None:
    state = a_good_run()
    state.add(event_of("results.lifecycle", died(part)))
    state.add(event_of("results.lifecycle", was_started(part)))
    assert conclude(state).valid


def test_what_dies_after_its_part_of_the_run_is_done_does_not_matter() -> None:
    state = a_good_run()
    state.add(event_of("results.lifecycle", died("generator")))
    state.add(event_of("results.lifecycle", died("runner")))
    assert conclude(state).valid


def test_a_generator_that_is_started_again_by_whomever_ends_the_run() -> None:
    state = RunState(a_request())
    state.add(event_of("results.lifecycle", was_started("generator")))
    assert state.failure == ""  # it was started for this run
    state.add(event_of("results.lifecycle", a_lifecycle_event("ready") | {"producer": "generator"}))
    state.add(event_of("results.lifecycle", was_started("generator")))
    assert state.failure == "generator was restarted during the run"


def test_one_of_two_generators_that_is_started_again_ends_the_run() -> None:
    state = RunState(a_request())
    for index in range(2):
        share = {"service": "generator", "instance_index": index, "instance_count": 2}
        ready = a_lifecycle_event("ready", json.dumps(share))
        state.add(event_of("results.lifecycle", ready | {"producer": f"generator-{index}"}))
    state.add(event_of("results.lifecycle", was_started("generator-2")))
    assert state.failure == ""  # it has no share of this run
    state.add(event_of("results.lifecycle", was_started("generator-1")))
    assert state.failure == "generator-1 was restarted during the run"
    assert state.broken_by == "generator"


def test_an_agent_that_is_started_again_after_its_pipeline_was_ready_ends_the_run() -> None:
    state = RunState(a_request())
    state.add(event_of("results.lifecycle", was_started("runner")))
    assert state.failure == ""
    ready = a_lifecycle_event("ready", pipeline="spark-realtime")
    state.add(event_of("results.lifecycle", ready | {"producer": "runner"}))
    state.add(event_of("results.lifecycle", was_started("runner")))
    assert state.failure == "runner was restarted during the run"
    assert state.broken_by == "runner"


@pytest.mark.parametrize(("pipeline", "broken_by"), [("", "generator"), ("p", "")])
def test_a_failed_service_broke_the_run_and_a_failed_pipeline_did_not(
    pipeline: str, broken_by: str
) -> None:
    state = RunState(a_request())
    failed = a_lifecycle_event(Failed.name, '{"reason": "x"}')
    state.add(
        event_of("results.lifecycle", failed | {"producer": "generator", "pipeline": pipeline})
    )
    assert state.failure
    assert state.broken_by == broken_by
