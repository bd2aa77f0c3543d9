"""A conductor that is killed during a search: the next one resumes from the steps on the bus.

No other service is running, so no step gets beyond its preparation and every rate counts as not
sustained. Other tests cover the measurements of a step.
"""

import json

import pytest

from schemas import catalogue, protocol
from schemas.search import Search
from services.conductor.orphaned_runs import KILLED
from services.runtime.events import open_events
from tests.integration.service_process import Reader, has_event, running_service, started
from tests.unit.requests import a_request

pytestmark = pytest.mark.integration

RUN_ID = "search-taken-up"
QUICK = {"TIDEGAUGE_PREPARE_TIMEOUT_S": "0.5", "TIDEGAUGE_STOP_TIMEOUT_S": "0.1"}
# Long enough to be killed during a preparation, even if that is noticed slowly.
PATIENT = QUICK | {"TIDEGAUGE_PREPARE_TIMEOUT_S": "5", "TIDEGAUGE_INSTANCE": "search-conductor"}
RATES = [80, 40, 20, 10]  # halved while none is sustained, down to the minimum


def a_search():
    request = a_request("calibration")
    load = request.workload.load.model_copy(update={"rate_per_second": RATES[0]})
    search = Search(min_rate_per_second=RATES[-1])
    workload = request.workload.model_copy(update={"load": load, "search": search})
    return request.model_copy(update={"run_id": RUN_ID, "workload": workload})


def step(number):
    return f"{RUN_ID}-step-{number:02}"


def test_every_step_of_a_search_whose_conductor_was_killed_is_accounted_for(broker, tmp_path):
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    conclusions = Reader(broker, catalogue.CONCLUSIONS)
    try:
        with running_service(broker, "conductor", tmp_path, **PATIENT) as conductor:
            lifecycle.until("", started("search-conductor"))
            open_events(broker, "tests").command("run", RUN_ID, a_search())
            lifecycle.until(step(3), has_event(protocol.RUN_REQUESTED))
            conductor.kill()
            conductor.wait()
        with running_service(broker, "conductor", tmp_path, **QUICK):
            lifecycle.until(RUN_ID, has_event(protocol.CONCLUDED))
        told = conclusions.everything(RUN_ID)
        of_steps = {n: conclusions.records(step(n)) for n in range(1, 7)}
    finally:
        lifecycle.close()
        conclusions.close()

    judged = [json.loads(one["detail"]) for one in told if one["kind"] == "search_step"]
    assert [(one["step"], one["rate_per_second"]) for one in judged] == [
        (1, 80),
        (2, 40),
        (4, 20),  # the rate of step 3
        (5, 10),
    ]
    assert {n: len(found) for n, found in of_steps.items()} == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 0}
    assert of_steps[3][0]["invalid_reasons"] == [KILLED]
    assert [one["kind"] for one in told[-2:]] == ["sustainable_throughput", "run"]
    result = json.loads(told[-2]["detail"])
    assert [one["rate_per_second"] for one in result["steps"]] == RATES
    assert result["lost_steps"] == [step(3)]
