"""The evaluator when it ends in the middle of a run, or cannot go on with it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from schemas import catalogue, protocol
from schemas.protocol import RunPlan, Stop
from services.runtime.events import open_events
from services.runtime.kafka import admin_client
from services.runtime.settings import ROOT
from services.runtime.topics import ensure_topics
from tests.integration.hand_written import ends, request_of
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.runs import readers
from tests.integration.service_process import has_event, running_service, send_probes

pytestmark = pytest.mark.integration

OUTPUTS = tuple(catalogue.output_topic("p", stage) for stage in protocol.STAGES)
# The evaluator, in which one method does what nobody foresaw.
BREAKS = """
import sys
from services.evaluator import __main__
from services.evaluator.current import CurrentRun
def fail(*_):
    raise RuntimeError("nobody foresaw this")
setattr(CurrentRun, sys.argv.pop(), fail)
__main__.main()
"""


@pytest.fixture(scope="module", autouse=True)
def outputs(broker):
    ensure_topics(admin_client(broker, "tests"), catalogue.output_topics("p"))


@contextmanager
def breaking_evaluator(broker, method):
    environment = os.environ | {
        "TIDEGAUGE_BASE_PORT": str(broker.base_port),
        "TIDEGAUGE_DATA": str(broker.data),
    }
    command = [sys.executable, "-c", BREAKS, method]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def plan_of(broker, run_id):
    return RunPlan(
        request=request_of(run_id), start_offsets=ends(broker, *catalogue.INPUTS, *OUTPUTS)
    )


def starts_of(pid, events):
    """What a process has said of its start: it hears every command from then on."""
    started = [one for one in events if one["event"] == protocol.SERVICE_STARTED]
    return [one for one in started if json.loads(one["detail"])["pid"] == pid]


@pytest.mark.parametrize("method", ["command", "add"])
def test_an_unexpected_error_ends_the_process_and_the_next_takes_up_the_run(broker, method):
    run_id, bus = f"breaks-{method}", open_events(broker, "tests")
    with (
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
        breaking_evaluator(broker, method) as process,
    ):
        lifecycle.until("", lambda events: starts_of(process.pid, events))
        bus.command("prepare", run_id, plan_of(broker, run_id))
        send_probes(broker, run_id)
        assert process.wait(60) == 1
        assert not has_event(protocol.READY)(lifecycle.records(run_id))
        with running_service(broker, "evaluator"):
            lifecycle.until(run_id, has_event(protocol.READY))
            bus.command("stop", run_id, Stop())
