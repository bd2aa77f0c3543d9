"""What the conductor concludes from the death of a part, and of a pipeline."""

import json

import pytest

from schemas import protocol
from services.conductor.conclusion import conclude
from services.conductor.evidence import Evidence
from tests.unit.conductor.good_run import a_good_run, drain, lifecycle
from tests.unit.requests import a_lifecycle_event, a_request

pytestmark = pytest.mark.unit


def test_what_a_restarted_pipeline_is_missing_may_still_come() -> None:
    evidence = a_good_run()
    drain(evidence, missing=3)
    assert not evidence.may_still_come()
    lifecycle(evidence, protocol.PIPELINE_DOWN, pipeline="spark-realtime")
    assert evidence.may_still_come()
    evidence.forget_drained()
    assert evidence.drained is None
    drain(evidence)
    assert not evidence.may_still_come()
    assert conclude(evidence).clean


def died(part: str) -> dict[str, object]:
    detail = json.dumps({"part": part, "reason": f"{part} was ended by SIGKILL", "restart": 1})
    return a_lifecycle_event(protocol.PART_DOWN, detail) | {"run_id": "", "producer": "stack"}


def was_started(service: str) -> dict[str, object]:
    event = a_lifecycle_event(protocol.SERVICE_STARTED)
    return event | {"run_id": "", "producer": service}


def test_a_run_whose_broker_died_says_so_where_it_has_suffered() -> None:
    evidence = a_good_run()
    evidence.add("results.lifecycle", died("kafka"))
    assert conclude(evidence).valid
    evidence.failure = "the generator did not finish the load"
    assert conclude(evidence).reasons == (
        "the generator did not finish the load.",
        "kafka was ended by SIGKILL in the middle of the run.",
    )


@pytest.mark.parametrize("part", ["generator", "runner"])
def test_a_run_cannot_go_on_without_what_makes_its_records(part: str) -> None:
    evidence = Evidence(a_request())
    evidence.add("results.lifecycle", died(part))
    assert conclude(evidence).reasons == (f"{part} was ended by SIGKILL in the middle of the run.",)


def test_nobody_waits_for_the_drivers_of_an_agent_that_died() -> None:
    evidence = Evidence(a_request("one", "two"))
    assert evidence.missing_stopped() == ["pipeline:one", "pipeline:two"]
    evidence.add("results.lifecycle", died("runner"))
    assert evidence.missing_stopped() == []


@pytest.mark.parametrize("part", ["store", "collector", "evaluator", "kafka"])
def test_a_run_goes_on_when_a_part_dies_that_goes_on_where_it_was(part: str) -> None:
    evidence = a_good_run()
    evidence.add("results.lifecycle", died(part))
    evidence.add("results.lifecycle", was_started(part))
    assert conclude(evidence).valid


def test_what_dies_after_its_part_of_the_run_is_done_does_not_matter() -> None:
    evidence = a_good_run()
    evidence.add("results.lifecycle", died("generator"))
    evidence.add("results.lifecycle", died("runner"))
    assert conclude(evidence).valid


def test_a_generator_that_is_started_again_by_whomever_ends_the_run() -> None:
    evidence = Evidence(a_request())
    evidence.add("results.lifecycle", was_started("generator"))
    assert evidence.failure == ""  # it was started for this run
    evidence.add("results.lifecycle", a_lifecycle_event("ready") | {"producer": "generator"})
    evidence.add("results.lifecycle", was_started("generator"))
    assert evidence.failure == "generator was started again in the middle of the run"


def test_an_agent_that_is_started_again_after_its_pipeline_was_ready_ends_the_run() -> None:
    evidence = Evidence(a_request())
    evidence.add("results.lifecycle", was_started("runner"))
    assert evidence.failure == ""
    lifecycle(evidence, "ready", pipeline="spark-realtime")
    evidence.add("results.lifecycle", was_started("runner"))
    assert evidence.failure == "runner was started again in the middle of the run"
