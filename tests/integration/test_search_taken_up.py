"""A conductor that is killed during a search: the next one resumes from the steps on the bus.

No other service is running, so no load begins, which says nothing about a rate: each step is lost,
and after some of them the search gives up. Other tests cover the measurements of a step.
"""

import json

import pytest

from schemas import catalogue
from schemas.commands import RequestRun
from schemas.events import Concluded, RunRequested
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
RATE = 80


def a_search():
    request = a_request("calibration")
    load = request.workload.load.model_copy(update={"rate_per_second": RATE})
    search = Search(min_rate_per_second=10)
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
            open_events(broker, "tests").send(RequestRun(run_id=RUN_ID, request=a_search()))
            lifecycle.until(step(3), has_event(RunRequested.name))
            conductor.kill()
            conductor.wait()
        with running_service(broker, "conductor", tmp_path, **QUICK):
            lifecycle.until(RUN_ID, has_event(Concluded.name))
        told = conclusions.everything(RUN_ID)
        of_steps = {n: conclusions.records(step(n)) for n in range(1, 7)}
    finally:
        lifecycle.close()
        conclusions.close()

    assert [one["kind"] for one in told] == ["sustainable_throughput", "run"]
    assert {n: len(found) for n, found in of_steps.items()} == {1: 1, 2: 1, 3: 1, 4: 1, 5: 0, 6: 0}
    assert of_steps[3][0]["invalid_reasons"] == [KILLED]
    result = json.loads(told[0]["detail"])
    assert (result["steps"], result["rate_per_second"]) == ([], None)
    assert result["lost_steps"] == [step(n) for n in (1, 2, 3, 4)]
    assert "not ready" in told[1]["invalid_reasons"][0]
