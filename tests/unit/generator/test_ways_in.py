"""A load through the gateway, in cases where this is impossible."""

from pathlib import Path
from typing import Any

import pytest
import structlog

from schemas.commands import Prepare
from schemas.protocol import RunPlan
from services.generator.librdkafka import ClientError
from services.generator.links import open_link
from services.generator.runs import RunCommands
from services.generator.settings import GeneratorSettings
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit


class Told:
    """Accepts lifecycle events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def publish(self, event: Any) -> None:
        self.events.append((event.name, event.detail))


def test_a_gateway_that_cannot_be_reached_by_udp_is_told_in_words() -> None:
    # An IPv4 socket cannot resolve an IPv6 address.
    with pytest.raises(ClientError, match="no gateway answers at ::1:17081: "):
        open_link("udp", ("::1", 17_081), b"hello", b"tag")


def test_a_load_through_a_gateway_is_refused_where_there_are_two_generators(tmp_path: Path) -> None:
    """Each would count the other's records as its own."""
    request = a_request()
    workload = request.workload.model_copy(update={"transport": "tcp"})
    plan = RunPlan(request=request.model_copy(update={"workload": workload}), start_offsets={})
    told: Any = Told()
    settings = GeneratorSettings(data=tmp_path, generator_instance_count=2)
    command = Prepare(run_id=request.run_id, plan=plan)
    RunCommands(settings, told, structlog.get_logger()).handle_command(command)
    ((event, detail),) = told.events
    assert event == "failed"
    assert detail["reason"] == (
        "the generator could not prepare: the transport tcp supports one generator, not 2; leave"
        " out --transport, or set TIDEGAUGE_GENERATOR_INSTANCE_COUNT to 1"
    )
