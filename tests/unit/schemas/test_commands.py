"""Commands: what is on `control.runs`, and which of them a reader gets."""

import json

import pytest

from schemas import codec
from schemas.commands import (
    COMMANDS,
    CancelRun,
    Drain,
    Malformed,
    Prepare,
    RequestRun,
    Stop,
    decode,
    from_record,
)
from schemas.protocol import RunPlan
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

HEAD = {"command_id": "1", "run_id": "r", "issued_at": 5, "producer": "conductor"}
PLAN = RunPlan(request=a_request(), start_offsets={"traffic.flow": (0, 1)})


@pytest.mark.parametrize(
    "command",
    [
        RequestRun(run_id="r", request=a_request()),
        Prepare(run_id="r", plan=PLAN),
        Drain(run_id="r", end_offsets={"traffic.flow": (3,)}),
        Stop(run_id="r", reason="run finished", keep_pipelines=True, keep_s=9),
        CancelRun(run_id="r"),
    ],
)
def test_a_command_is_read_as_it_was_sent(command):
    record = command.record("conductor", 5)
    read = decode(codec.encode("control_command", record))
    sent = {"command_id": record["command_id"], "issued_at": 5, "producer": "conductor"}
    assert read == command.model_copy(update=sent)
    assert type(read) is type(command)


def test_the_body_of_a_command_is_the_json_of_what_it_carries():
    assert Prepare(run_id="r", plan=PLAN).content() == PLAN.model_dump_json()
    assert json.loads(Stop(reason="x", keep_s=2).content()) == {"reason": "x", "keep_s": 2.0}


@pytest.mark.parametrize("body", ["{}", "no JSON", "[]", '{"phases": {}}'])
@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"stop", "cancel", "changes"}))
def test_a_command_with_other_content_is_malformed(name, body):
    found = from_record(HEAD | {"command": name, "body": body})
    assert isinstance(found, Malformed)
    assert (found.name, found.run_id, found.command_id) == (name, "r", "1")
    assert found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize("kind", [Stop, CancelRun])
def test_a_run_is_ended_also_by_a_command_whose_content_nobody_can_read(kind):
    found = from_record(HEAD | {"command": kind.name, "body": "no JSON"})
    assert found == kind(**HEAD)


def test_what_is_no_known_command_is_refused():
    with pytest.raises(codec.DecodeError, match="'dance' is not a known command"):
        from_record(HEAD | {"command": "dance", "body": "{}"})
