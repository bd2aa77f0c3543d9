"""The evaluator when it dies in the middle of a run, or cannot continue it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

from schemas import catalogue
from schemas.commands import Prepare, Start, Stop
from schemas.events import Failed, Ready, ServiceStarted
from schemas.protocol import PhasePlan, RunPlan
from services.runtime.events import open_events
from services.runtime.kafka import admin_client, ensure_topics, idempotent_producer
from services.runtime.settings import ROOT
from tests.integration.hand_written import PHASES, HandWritten, ends, request_of, write
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.runs import readers
from tests.integration.service_process import has_event, running_service, send_probes
from tests.traffic import TRAFFIC, output_topics

pytestmark = pytest.mark.integration

FLOW = TRAFFIC.input("flow").topic

OUTPUTS = tuple(catalogue.output_topic("p", stage) for stage in TRAFFIC.stage_names)
GONE = "The first records of the run in traffic.flow are no longer retained"
# The evaluator with one method replaced, which raises an unexpected error.
BREAKS = """
import sys
from services.evaluator import __main__
from services.evaluator.run.session import EvaluatorSession
def fail(*_):
    raise RuntimeError("nobody foresaw this")
setattr(EvaluatorSession, sys.argv.pop(), fail)
__main__.main()
"""


@pytest.fixture(scope="module", autouse=True)
def outputs(broker):
    ensure_topics(admin_client(broker, "tests"), output_topics("p"))


@contextmanager
def breaking_evaluator(broker, method):
    environment = os.environ | {
        "TIDEGAUGE_BASE_PORT": str(broker.base_port),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": broker.kafka_bootstrap,
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
        request=request_of(run_id), start_offsets=ends(broker, *TRAFFIC.topics, *OUTPUTS)
    )


def begin(broker, bus, lifecycle, run_id):
    """Prepare and start a run of the running evaluator."""
    run = HandWritten(run_id, (int(time.time()) - 10) * 1_000)
    bus.send(Prepare(run_id=run_id, plan=plan_of(broker, run_id)))
    send_probes(broker, run_id)
    lifecycle.until(run_id, has_event(Ready.name))
    bus.send(Start(run_id=run_id, phases=PhasePlan(load_start_ms=run.start_ms, phases=PHASES)))
    return run


def starts_of(pid, events):
    """Start events of a process: it receives every command from then on."""
    started = [one for one in events if one["event"] == ServiceStarted.name]
    return [one for one in started if json.loads(one["detail"])["pid"] == pid]


def delete_flow(broker):
    """Delete every record of traffic.flow, like retention."""
    (end,) = ends(broker, FLOW)[FLOW]
    asked = [TopicPartition(FLOW, 0, end)]
    admin = admin_client(broker, "tests")
    for deleted in admin.delete_records(asked).values():
        assert deleted.result(10).low_watermark == end


@pytest.mark.parametrize("method", ["command", "add"])
def test_an_unexpected_error_ends_the_process_and_the_next_takes_up_the_run(broker, method):
    run_id, bus = f"breaks-{method}", open_events(broker, "tests")
    with (
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
        breaking_evaluator(broker, method) as process,
    ):
        lifecycle.until("", lambda events: starts_of(process.pid, events))
        bus.send(Prepare(run_id=run_id, plan=plan_of(broker, run_id)))
        send_probes(broker, run_id)
        assert process.wait(60) == 1
        assert not has_event(Ready.name)(lifecycle.records(run_id))
        with running_service(broker, "evaluator"):
            lifecycle.until(run_id, has_event(Ready.name))
            bus.send(Stop(run_id=run_id))


def reason_when_taken_up(broker, bus, lifecycle, run_id):
    """Failure reason of a run that another process resumes."""
    with running_service(broker, "evaluator"):
        failed = lifecycle.until(run_id, has_event(Failed.name))[-1]
        bus.send(Stop(run_id=run_id))
    return json.loads(failed["detail"])["reason"]


def test_a_run_whose_records_are_gone_fails_when_it_is_taken_up(broker):
    run_id, bus = "gone", open_events(broker, "tests")
    with readers(broker, catalogue.LIFECYCLE) as (lifecycle,):
        with running_service(broker, "evaluator") as process:
            run = begin(broker, bus, lifecycle, run_id)
            process.kill()
            process.wait()
        write(broker, [("traffic.flow", run.encoded(("a", 0, "flow")))])
        delete_flow(broker)
        assert reason_when_taken_up(broker, bus, lifecycle, run_id).startswith(GONE)


def test_records_that_are_gone_before_they_were_read_are_not_passed_over(broker):
    run_id, bus = "overtaken", open_events(broker, "tests")
    with readers(broker, catalogue.LIFECYCLE, catalogue.THROUGHPUT) as (lifecycle, throughput):
        with running_service(broker, "evaluator") as process:
            run = begin(broker, bus, lifecycle, run_id)
            first = [("traffic.flow", run.encoded(("a", 0, "flow")))]
            write(broker, first)
            throughput.until(run_id, len)
            process.send_signal(signal.SIGSTOP)
            write(broker, first)
            time.sleep(1)  # a pending fetch of the broker takes the existing records
            write(broker, first)
            delete_flow(broker)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == 1
        assert reason_when_taken_up(broker, bus, lifecycle, run_id).startswith(GONE)


def test_a_record_larger_than_its_dead_letter_may_be_does_not_stop_the_run(broker):
    run_id, bus = "large", open_events(broker, "tests")
    large = b"\0" * 3_000_000  # the broker accepts it because it compresses well
    with (
        readers(broker, catalogue.LIFECYCLE, catalogue.DEAD_LETTER) as (lifecycle, dead),
        readers(broker, catalogue.THROUGHPUT) as (throughput,),
        running_service(broker, "evaluator"),
    ):
        run = begin(broker, bus, lifecycle, run_id)
        producer = idempotent_producer(broker, "tests", **{"message.max.bytes": 10_000_000})
        producer.produce(FLOW, large)
        assert producer.flush(10) == 0
        write(broker, [("traffic.flow", run.encoded(("a", 0, "flow")))])
        throughput.until(run_id, len)
        (letter,) = dead.until(run_id, len)
        bus.send(Stop(run_id=run_id))
    assert letter["value"] == large[:900_000]
    assert letter["reason"].startswith(
        "its value of 3000000 bytes was truncated to 900000; not in Avro"
    )
