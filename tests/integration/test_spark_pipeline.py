"""The pipelines as processes, on a real broker: hand-written records in, exact outputs out."""

import os
import signal
import time

import psutil
import pytest
from confluent_kafka import Producer

from schemas import catalogue, codec, protocol
from schemas.model import STAGES
from schemas.protocol import RunPlan, RunRequest, Stop
from schemas.workload import Load, Workload
from services.runtime.definitions import load_pipeline
from services.runtime.events import open_events
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets
from services.runtime.topics import ensure_topics
from tests.integration.kafka_broker import broker  # noqa: F401
from tests.integration.service_process import Reader, has_event, running_service

pytestmark = pytest.mark.integration

MODES = ("spark-realtime", "spark-microbatch")

START_DEADLINE_S = 180
STOP_DEADLINE_S = 30
T0 = 1_767_225_600_000
# Per second of event time: flow and speed of the two lanes of site A.
SECONDS = (
    {"lane1": (60, 80.0), "lane2": (40, 40.0)},
    {"lane1": (0, 100.0), "lane2": (50, 50.0)},
    {"lane1": (75, 90.0), "lane2": (75, 90.0)},
)


def records(run_id, t0=T0):
    """Topic and record, speeds of a second before its flows; one more flow that nothing matches."""
    found, sequence = [], 0
    for second, lanes in enumerate(SECONDS):
        for kind, field, which in (
            ("speed", "speed_km_per_hour", 1),
            ("flow", "flow_vehicles_per_hour", 0),
        ):
            for lane, values in lanes.items():
                common = {
                    "measurement_id": "A", "lane": lane, "num_lanes": 2, "latitude": 52.5,
                    "longitude": 4.75, "observed_at": t0 + 1000 * second, "period_s": 60,
                    "accuracy_percent": 95, "sequence": sequence, "run_id": run_id,
                    "scheduled_at": 0,
                }  # fmt: skip
                found.append((f"traffic.{kind}", common | {field: values[which]}))
                sequence += 1
    lonely = {"measurement_id": "B", "sequence": sequence, "flow_vehicles_per_hour": 1}
    return [*found, ("traffic.flow", found[2][1] | lonely)]


def expected_parse(run_id):
    blank = {"flow_vehicles_per_hour": None, "speed_km_per_hour": None}
    rows = [blank | record for _, record in records(run_id)]
    return [{k: v for k, v in row.items() if k != "scheduled_at"} for row in rows]


def expected_join(run_id):
    return [
        {"run_id": run_id, "measurement_id": "A", "lane": lane, "num_lanes": 2,
         "observed_at": T0 + 1000 * second, "flow_vehicles_per_hour": flow,
         "speed_km_per_hour": speed}
        for second, lanes in enumerate(SECONDS)
        for lane, (flow, speed) in lanes.items()
    ]  # fmt: skip


def expected_tumbling(run_id):
    return [
        {"run_id": run_id, "measurement_id": "A", "window_start": T0 + 1000 * second,
         "window_end": T0 + 1000 * second + 1000, "lanes": 2,
         "accumulated_flow_vehicles_per_hour": flow, "average_speed_km_per_hour": speed}
        for second, flow, speed in ((0, 100, 60.0), (1, 50, 75.0), (2, 150, 90.0))
    ]  # fmt: skip


def expected_sliding(run_id):
    return [
        {"run_id": run_id, "measurement_id": "A", "window_start": T0, "window_end": T0 + 3000,
         "flow_change_short": 2.0, "flow_change_long": 0.5,
         "speed_change_short": 0.2, "speed_change_long": 0.5}
    ]  # fmt: skip


EXPECTED = {
    "parse": expected_parse,
    "join": expected_join,
    "tumbling": expected_tumbling,
    "sliding": expected_sliding,
}


def prepare(settings, run_id, names):
    pipelines = tuple(load_pipeline(name) for name in names)
    partitions = settings.input_partitions
    wanted = [t for name in names for t in catalogue.output_topics(name, STAGES, partitions)]
    ensure_topics(admin_client(settings, "tests"), wanted)
    consumer = assigned_consumer(settings, "tests")
    offsets = {topic: end_offsets(consumer, topic) for topic in catalogue.INPUTS}
    consumer.close()
    workload = Workload(name="test", summary="-", load=Load(rate_per_second=1))
    request = RunRequest(run_id=run_id, workload=workload, pipelines=pipelines, stages=STAGES)
    plan = RunPlan(request=request, start_offsets=offsets)
    open_events(settings, "tests").command("prepare", run_id, plan)


def write(settings, run_id):
    """The records of a run, before and after some values that are none. Returns the bytes."""
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for topic in catalogue.INPUTS:
        producer.produce(topic, b"not a record", b"k")
        producer.produce(topic, codec.header(topic.replace(".", "_")) + b"\x06", b"k")
    sent = []
    for topic, record in records(run_id):
        sent.append(codec.encode(topic.replace(".", "_"), record))
        producer.produce(topic, sent[-1], record["measurement_id"])
    assert producer.flush(30) == 0
    return sent


def driver_groups(folder):
    """Process groups of drivers (with their JVMs) of the stack whose state is in `folder`."""
    groups = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        text = " ".join(process.info["cmdline"] or ())
        if "services.spark_pipeline.driver" in text and str(folder) in text:
            groups.add(process.info["pid"])
    return groups


def processes_of(groups):
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            alive = process.info["status"] != psutil.STATUS_ZOMBIE
            if alive and os.getpgid(process.info["pid"]) in groups:
                found.append(process)
        except ProcessLookupError:
            continue
    return found


def wait_until(condition, deadline_s, what):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)  # between two looks, within the deadline


def of(found, event, pipeline=""):
    return [r for r in found if (r["event"], r["pipeline"]) == (event, pipeline)]


def at_least(number):
    return lambda found: len(found) >= number


def say(event, pipeline):
    return lambda found: of(found, event, pipeline)


@pytest.fixture
def agent(broker, tmp_path):  # noqa: F811
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    lifecycle.read()
    before = len(of(lifecycle.records(""), protocol.SERVICE_STARTED))
    with running_service(broker, "spark_pipeline", tmp_path) as process:
        lifecycle.until("", lambda found: len(of(found, protocol.SERVICE_STARTED)) > before)
        yield process, lifecycle, tmp_path
    groups = driver_groups(tmp_path)
    wait_until(lambda: not processes_of(groups), STOP_DEADLINE_S, "a driver was left behind")
    lifecycle.close()


def test_every_output_is_there_once_and_exact_and_a_killed_driver_goes_on(broker, agent):  # noqa: F811
    process, lifecycle, folder = agent
    prepare(broker, "exact", MODES)
    sent = write(broker, "exact")
    for mode in MODES:
        ready = lifecycle.until("exact", say(protocol.READY, mode), START_DEADLINE_S)
        assert '"spark_version"' in of(ready, protocol.READY, mode)[0]["detail"]
    for mode in MODES:
        check_outputs(broker, mode, "exact", sent)

    check_dead_letters(broker, "exact")

    groups = driver_groups(folder)
    assert len(groups) == 2
    victim = next(p for p in map(psutil.Process, groups) if MODES[1] in p.cmdline())

    victim.kill()
    down = lifecycle.until("exact", say(protocol.PIPELINE_DOWN, MODES[1]))
    assert "exit code -9" in of(down, protocol.PIPELINE_DOWN, MODES[1])[0]["detail"]
    wait_until(lambda: not processes_of({victim.pid}), STOP_DEADLINE_S, "a JVM was left behind")
    lifecycle.until("exact", say(protocol.PIPELINE_UP, MODES[1]), START_DEADLINE_S)
    groups = driver_groups(folder)
    assert len(groups) == 2

    open_events(broker, "tests").command("stop", "exact", Stop())
    for mode in MODES:
        lifecycle.until("exact", say(protocol.STOPPED, mode))
    assert not processes_of(groups)
    assert not (folder / "runs" / "exact").exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_DEADLINE_S) == 0


def check_dead_letters(settings, run_id):
    """The four values that are no records, once from every pipeline, whole."""
    reader = Reader(settings, catalogue.DEAD_LETTER)
    letters = reader.until(run_id, at_least(4 * len(MODES)), START_DEADLINE_S)
    assert sorted((each["producer"], each["topic"], each["value"]) for each in letters) == sorted(
        (f"spark_pipeline-{mode}", topic, value)
        for mode in MODES
        for topic in catalogue.INPUTS
        for value in (b"not a record", codec.header(topic.replace(".", "_")) + b"\x06")
    )
    reader.close()


def check_outputs(settings, mode, run_id, sent):
    ingest = Reader(settings, catalogue.output_topic(mode, "ingest"))
    end = time.monotonic() + START_DEADLINE_S
    while len(ingest.messages) < len(sent) + 4:  # the four that are no records pass too
        assert time.monotonic() < end, f"{mode}: {len(ingest.messages)} of stage ingest"
        ingest.read()
    assert set(sent) <= {message.value() for message in ingest.messages}
    assert len(ingest.messages) == len(sent) + 4
    ingest.close()
    for stage, expected in EXPECTED.items():
        reader = Reader(settings, catalogue.output_topic(mode, stage))
        rows = expected(run_id)
        found = reader.until(run_id, at_least(len(rows)), START_DEADLINE_S)
        assert [row for row in found if row not in rows] == [], f"{mode} {stage}"
        assert len(found) == len(rows), f"{mode} {stage}"
        assert {message.key() for message in reader.messages} <= {b"A", b"B"}
        reader.close()


def test_no_driver_and_no_jvm_outlives_an_agent_that_was_killed(broker, agent):  # noqa: F811
    process, _, folder = agent
    prepare(broker, "orphan", MODES[:1])
    wait_until(lambda: len(processes_of(driver_groups(folder))) > 1, START_DEADLINE_S, "no JVM")
    groups = driver_groups(folder)
    process.kill()
    wait_until(lambda: not processes_of(groups), STOP_DEADLINE_S, "something was left behind")


def test_a_query_that_cannot_run_is_a_failure_with_stage_and_reason(broker, agent):  # noqa: F811
    _, lifecycle, _ = agent
    request = RunRequest(
        run_id="broken",
        workload=Workload(name="test", summary="-", load=Load(rate_per_second=1)),
        pipelines=(load_pipeline("spark-microbatch"),),
        stages=("ingest",),
    )
    beyond = dict.fromkeys(catalogue.INPUTS, (5_000_000,) * broker.input_partitions)
    plan = RunPlan(request=request, start_offsets=beyond)
    open_events(broker, "tests").command("prepare", "broken", plan)
    write(broker, "broken")
    found = lifecycle.until("broken", has_event(protocol.FAILED), START_DEADLINE_S)
    (event,) = of(found, protocol.FAILED, "spark-microbatch")
    assert event["stage"] == "ingest"
    assert "data may have been lost" in event["detail"]
