"""A run with its own topics: the conductor creates them with the requested number of partitions.

No other service is running, so no run gets beyond its preparation.
"""

import json

import pytest

from schemas import catalogue
from schemas.commands import RequestRun
from schemas.events import Concluded, Preparing
from services.runtime.events import open_events
from tests.integration.service_process import Reader, has_event, running_service, started
from tests.unit.requests import a_request

pytestmark = pytest.mark.integration

QUICK = {"TIDEGAUGE_PREPARE_TIMEOUT_S": "0.5", "TIDEGAUGE_STOP_TIMEOUT_S": "0.1"}


def asked(run_id, partitions):
    request = a_request("p-w1")
    workload = request.workload.model_copy(update={"partitions": partitions})
    update = {"run_id": run_id, "workload": workload, "stages": ("parse",)}
    return request.model_copy(update=update)


def test_a_run_has_topics_with_its_own_partitions_and_outputs_keep_theirs(broker, tmp_path):
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    try:
        with running_service(broker, "conductor", tmp_path, TIDEGAUGE_INSTANCE="of-parts", **QUICK):
            lifecycle.until("", started("of-parts"))
            for run_id, partitions in (("of-four", 4), ("of-two", 2)):
                open_events(broker, "tests").send(
                    RequestRun(run_id=run_id, request=asked(run_id, partitions))
                )
                lifecycle.until(run_id, has_event(Concluded.name))
        made = {run_id: partitions_of(lifecycle, run_id) for run_id in ("of-four", "of-two")}
    finally:
        lifecycle.close()
    assert made == {
        "of-four": {
            "traffic.flow.4-partitions": 4,
            "traffic.speed.4-partitions": 4,
            "output.p-w1.parse": 4,
        },
        "of-two": {
            "traffic.flow.2-partitions": 2,
            "traffic.speed.2-partitions": 2,
            "output.p-w1.parse": 4,
        },
    }


def partitions_of(lifecycle, run_id):
    """Partitions by topic, from the plan of the run."""
    events = lifecycle.everything(run_id)
    (plan,) = (json.loads(one["detail"]) for one in events if one["event"] == Preparing.name)
    return {topic: len(offsets) for topic, offsets in plan["start_offsets"].items()}
