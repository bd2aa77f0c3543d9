"""The pipelines as processes, with a real broker: hand-written records in, exact outputs out."""

import os
import signal
import time
from collections import Counter

import psutil
import pytest
from confluent_kafka import Producer

from schemas import catalogue
from schemas.commands import Prepare, Stop
from schemas.events import Failed, PipelineDown, PipelineStopped, PipelineUp, Ready, ServiceStarted
from schemas.load import Constant
from schemas.protocol import RunPlan, RunRequest
from schemas.workload import Workload
from services.definitions.pipelines import load_pipeline, stages_published
from services.runtime.events import open_events
from services.runtime.kafka import (
    admin_client,
    assigned_consumer,
    end_offsets,
    ensure_topics,
    open_client_properties,
)
from services.runtime.program import pipeline_of
from tests.integration.kafka_broker import own_wide_broker  # noqa: F401
from tests.integration.service_process import Reader, has_event, running_service
from tests.listening import open_to_others, tree
from tests.traffic import CODEC, TRAFFIC

pytestmark = pytest.mark.integration

MODES = ("spark-realtime", "spark-microbatch")
OTHERS = ("spark-microbatch-state", "spark-microbatch-builtin", "spark-continuous")

START_DEADLINE_S = 400
STOP_DEADLINE_S = 60
T0 = 1_767_225_600_000
LATER = T0 + 10_000
# Per second of event time: flow and speed of the two lanes of site A.
SECONDS = (
    {"lane1": (60, 80.0), "lane2": (40, 40.0)},
    {"lane1": (0, 100.0), "lane2": (50, 50.0)},
    {"lane1": (75, 90.0), "lane2": (75, 90.0)},
)
# Kind, site, lane, second and value of records without a match. The last two close the windows of
# pipelines whose windows are closed by event time.
LONELY = (
    ("flow", "B", "lane1", 0, 1),
    ("speed", "C", "lane1", 3, 1.0),
    ("flow", "D", "lane1", 3, 1),
)
FIELDS = {"flow": "flow_vehicles_per_hour", "speed": "speed_km_per_hour"}


def records(run_id, t0=T0):
    """Topic and record in order of event time, speeds of a second before its flows."""
    values = [
        (kind, "A", lane, second, lanes[lane][which])
        for second, lanes in enumerate(SECONDS)
        for kind, which in (("speed", 1), ("flow", 0))
        for lane in lanes
    ]
    in_order = sorted([*values, *LONELY], key=lambda each: each[3])
    return [
        (
            f"traffic.{kind}",
            {
                "measurement_id": site, "lane": lane, "num_lanes": 2, "latitude": 52.5,
                "longitude": 4.75, "observed_at": t0 + 1000 * second, "period_s": 60,
                "accuracy_percent": 95, "sequence": sequence, "run_id": run_id,
                "scheduled_at": 0, FIELDS[kind]: value,
            },
        )
        for sequence, (kind, site, lane, second, value) in enumerate(in_order)
    ]  # fmt: skip


def expected_parse(run_id, t0):
    blank = dict.fromkeys(FIELDS.values())
    rows = [blank | record for _, record in records(run_id, t0)]
    return [{k: v for k, v in row.items() if k != "scheduled_at"} for row in rows]


def expected_join(run_id, t0):
    return [
        {"run_id": run_id, "measurement_id": "A", "lane": lane, "num_lanes": 2,
         "observed_at": t0 + 1000 * second, "flow_vehicles_per_hour": flow,
         "speed_km_per_hour": speed}
        for second, lanes in enumerate(SECONDS)
        for lane, (flow, speed) in lanes.items()
    ]  # fmt: skip


def expected_tumbling(run_id, t0):
    return [
        {"run_id": run_id, "measurement_id": "A", "window_start": t0 + 1000 * second,
         "window_end": t0 + 1000 * second + 1000, "lanes": 2,
         "accumulated_flow_vehicles_per_hour": flow, "average_speed_km_per_hour": speed}
        for second, flow, speed in ((0, 100, 60.0), (1, 50, 75.0), (2, 150, 90.0))
    ]  # fmt: skip


def changes(run_id, start, flow, speed):
    """Row of `output_sliding`. flow, speed: change against 1 s and 2 s before."""
    return {"run_id": run_id, "measurement_id": "A", "window_start": start,
            "window_end": start + 3000, "flow_change_short": flow[0], "flow_change_long": flow[1],
            "speed_change_short": speed[0], "speed_change_long": speed[1]}  # fmt: skip


def expected_sliding(run_id, t0):
    return [changes(run_id, t0, (2.0, 0.5), (0.2, 0.5))]


def expected_built_in_sliding(run_id, t0):
    """Including the windows that lack one or both of the previous seconds."""
    return [
        changes(run_id, t0 - 2000, (None, None), (None, None)),
        changes(run_id, t0 - 1000, (-0.5, None), (0.25, None)),
        *expected_sliding(run_id, t0),
    ]


EXPECTED = {
    "parse": expected_parse,
    "join": expected_join,
    "tumbling": expected_tumbling,
    "sliding": expected_sliding,
}
EXPECTED_BUILT_IN = EXPECTED | {"sliding": expected_built_in_sliding}


def a_plan(settings, run_id, names, domain=TRAFFIC):
    """The plan of a run of pipelines, whose topics exist."""
    pipelines = tuple(load_pipeline(name) for name in names)
    stages, partitions = domain.stage_names, settings.input_partitions
    outputs = [catalogue.published_topics(domain, name, stages, partitions) for name in names]
    wanted = [*catalogue.domain_topics(domain, partitions), *(t for each in outputs for t in each)]
    ensure_topics(admin_client(settings, "tests"), wanted)
    consumer = assigned_consumer(settings, "tests")
    offsets = {topic: end_offsets(consumer, topic) for topic in domain.topics}
    consumer.close()
    workload = Workload(name="test", summary="-", load=Constant(rate_per_second=1))
    request = RunRequest(
        run_id=run_id,
        workload=workload,
        pipelines=pipelines,
        stages=stages,
        domain=domain,
        published={one.name: stages_published(one, domain, stages)[0] for one in pipelines},
    )
    return RunPlan(request=request, start_offsets=offsets, start_timeout_s=START_DEADLINE_S)


def prepare(settings, run_id, names):
    """Let the agent start pipelines."""
    plan = a_plan(settings, run_id, names)
    open_events(settings, "tests").send(Prepare(run_id=run_id, plan=plan))


def published(name):
    """The stages that a pipeline publishes."""
    return stages_published(load_pipeline(name), TRAFFIC, TRAFFIC.stage_names)[0]


def no_records(topic):
    """Undecodable values for a topic."""
    return b"not a record", CODEC.header(topic.replace(".", "_")) + b"\x06"


def write(settings, run_id, t0=T0):
    """Write undecodable values, then the records of a run. Returns the bytes of all.

    Each is in its topic before the next is written, so that none is late in any reading order.
    """
    values = [(topic, value, "k") for topic in TRAFFIC.topics for value in no_records(topic)]
    values += [
        (topic, CODEC.encode(topic.replace(".", "_"), record), record["measurement_id"])
        for topic, record in records(run_id, t0)
    ]
    producer = Producer(open_client_properties(settings, "tests"))
    for topic, value, key in values:
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0
    return [value for _topic, value, _key in values]


def driver_groups(folder):
    """Process groups of the drivers (with their JVMs) of the stack whose state is in `folder`."""
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
        time.sleep(0.1)  # poll interval


def of(found, event, pipeline=""):
    return [r for r in found if (r["event"], r["pipeline"]) == (event, pipeline)]


def at_least(number):
    return lambda found: len(found) >= number


def every(rows):
    return lambda found: all(row in found for row in rows)


def say(event, pipeline):
    return lambda found: of(found, event, pipeline)


@pytest.fixture
def agent(broker, tmp_path):
    lifecycle = Reader(broker, catalogue.LIFECYCLE)
    lifecycle.read()
    before = len(of(lifecycle.records(""), ServiceStarted.name))
    with running_service(broker, "runner", tmp_path) as process:
        lifecycle.until("", lambda found: len(of(found, ServiceStarted.name)) > before)
        yield process, lifecycle, tmp_path
        groups = driver_groups(tmp_path)  # before the agent is killed: then nothing stops them
    wait_until(lambda: not processes_of(groups), STOP_DEADLINE_S, "a driver was left behind")
    lifecycle.close()


def test_every_output_is_there_once_and_exact_and_a_killed_driver_goes_on(broker, agent):
    process, lifecycle, folder = agent
    sent = publishes_exactly(broker, lifecycle, "exact", MODES)
    for mode in MODES:
        check_progress(broker, mode, "exact", len(sent))
    check_scheduler_delays(broker, MODES[1], "exact")

    groups = driver_groups(folder)
    assert len(groups) == 2
    assert open_to_others(tree(process.pid)) == set()
    victim = next(p for p in map(psutil.Process, groups) if pipeline_of(p.cmdline()) == MODES[1])

    victim.kill()
    down = lifecycle.until("exact", say(PipelineDown.name, MODES[1]))
    assert "code -9" in of(down, PipelineDown.name, MODES[1])[0]["detail"]
    wait_until(lambda: not processes_of({victim.pid}), STOP_DEADLINE_S, "a JVM was left behind")
    lifecycle.until("exact", say(PipelineUp.name, MODES[1]), START_DEADLINE_S)
    groups = driver_groups(folder)
    assert len(groups) == 2
    more = write(broker, "exact", LATER)
    for mode in MODES:
        check_outputs(broker, mode, "exact", more, LATER, before=sent)

    open_events(broker, "tests").send(Stop(run_id="exact"))
    for mode in MODES:
        lifecycle.until("exact", say(PipelineStopped.name, mode))
    # The group has been killed; a large process takes some time to exit.
    wait_until(lambda: not processes_of(groups), STOP_DEADLINE_S, "a driver was left behind")
    assert not (folder / "runs" / "exact").exists()
    topics = admin_client(broker, "tests").list_topics(timeout=30).topics
    assert [name for name in topics if name.startswith(catalogue.ENGINE_PREFIX)] == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_DEADLINE_S) == 0


@pytest.mark.engines
def test_every_output_of_the_other_pipelines_is_there_once_and_exact(broker, agent):
    _, lifecycle, _ = agent
    publishes_exactly(broker, lifecycle, "others", OTHERS)


def publishes_exactly(settings, lifecycle, run_id, names):
    """Start pipelines, and check everything they publish. Returns the values of their inputs."""
    prepare(settings, run_id, names)
    sent = write(settings, run_id)
    for name in names:
        ready = lifecycle.until(run_id, say(Ready.name, name), START_DEADLINE_S)
        assert '"spark_version"' in of(ready, Ready.name, name)[0]["detail"]
    for name in names:
        check_outputs(settings, name, run_id, sent)
    check_dead_letters(settings, run_id, names)
    return sent


def check_progress(settings, mode, run_id, rows):
    """A stage reports all its rows, each once, while it runs, and finally that it has read all."""

    def is_whole(found):
        mine = [(one["input_rows"], one["lag_records"]) for one in found
                if (one["pipeline"], one["stage"]) == (mode, "join")]  # fmt: skip
        return sum(count for count, _lag in mine) == rows and mine[-1][1] == 0

    reader = Reader(settings, catalogue.PIPELINE)
    reader.until(run_id, is_whole, START_DEADLINE_S)
    reader.close()


def check_scheduler_delays(settings, mode, run_id):
    """Tasks that ended are counted by their delay, for the pipeline and none of its stages."""
    reader = Reader(settings, catalogue.PIPELINE)
    found = reader.until(run_id, lambda found: tasks_of(found, mode), START_DEADLINE_S)
    for one in tasks_of(found, mode):
        assert one["stage"] == ""
        assert min(one["scheduler_delay_tasks"]) >= 1
        assert 0 <= min(one["scheduler_delays_ms"]) <= max(one["scheduler_delays_ms"]) <= 10_000
    reader.close()


def tasks_of(found, mode):
    return [one for one in found if one["pipeline"] == mode and one["scheduler_delays_ms"]]


def check_dead_letters(settings, run_id, names):
    """The four undecodable values, complete, once of every pipeline that parses."""
    parsing = [name for name in names if "parse" in published(name)]
    reader = Reader(settings, catalogue.DEAD_LETTER)
    letters = reader.until(run_id, at_least(4 * len(parsing)), START_DEADLINE_S)
    found = [(each["reason"].split(":")[0], each["topic"], each["value"]) for each in letters]
    assert sorted(found) == sorted(
        (name, topic, value)
        for name in parsing
        for topic in TRAFFIC.topics
        for value in no_records(topic)
    )
    reader.close()


def check_outputs(settings, mode, run_id, sent, t0=T0, before=()):
    """Every expected output of the values sent, with records from t0 on, exists once. The only
    others are those published before, which a killed driver may repeat."""
    pipeline = load_pipeline(mode)
    if "ingest" in published(mode):
        check_ingest(settings, mode, sent, before)
    is_built_in = pipeline.settings["implementation"] == "built-in"
    outputs = EXPECTED_BUILT_IN if is_built_in else EXPECTED
    for stage in (stage for stage in outputs if stage in published(mode)):
        reader = Reader(settings, catalogue.output_topic(mode, stage))
        rows, earlier = outputs[stage](run_id, t0), outputs[stage](run_id, T0)
        found = reader.until(run_id, every(rows), START_DEADLINE_S)
        assert [row for row in found if row not in [*rows, *earlier]] == [], f"{mode} {stage}"
        assert {found.count(row) for row in rows} == {1}, f"{mode} {stage}"
        keys = {row["measurement_id"].encode() for row in rows}
        assert {message.key() for message in reader.messages} == keys
        reader.close()


def check_ingest(settings, mode, sent, before):
    """Undecodable values pass, too."""
    wanted = Counter(value for value in sent if value not in before)
    reader = Reader(settings, catalogue.output_topic(mode, "ingest"))
    end, found = time.monotonic() + START_DEADLINE_S, Counter()
    while found.total() < wanted.total():
        assert time.monotonic() < end, f"{mode}: {found.total()} of stage ingest"
        reader.read()
        values = [message.value() for message in reader.messages]
        found = Counter(value for value in values if value not in before)
    assert found == wanted
    reader.close()


def test_no_driver_and_no_jvm_outlives_an_agent_that_was_killed(broker, agent):
    process, _, folder = agent
    prepare(broker, "orphan", MODES[:1])
    wait_until(lambda: len(processes_of(driver_groups(folder))) > 1, START_DEADLINE_S, "no JVM")
    groups = driver_groups(folder)
    process.kill()
    wait_until(lambda: not processes_of(groups), STOP_DEADLINE_S, "something was left behind")


def test_a_query_that_cannot_run_is_a_failure_with_stage_and_reason(broker, agent):
    _, lifecycle, _ = agent
    request = RunRequest(
        run_id="broken",
        workload=Workload(name="test", summary="-", load=Constant(rate_per_second=1)),
        pipelines=(load_pipeline("spark-microbatch"),),
        stages=("ingest",),
        domain=TRAFFIC,
    )
    beyond = dict.fromkeys(TRAFFIC.topics, (5_000_000,) * broker.input_partitions)
    plan = RunPlan(request=request, start_offsets=beyond)
    open_events(broker, "tests").send(Prepare(run_id="broken", plan=plan))
    write(broker, "broken")
    found = lifecycle.until("broken", has_event(Failed.name), START_DEADLINE_S)
    (event,) = of(found, Failed.name, "spark-microbatch")
    assert event["stage"] == "ingest"
    assert "data may have been lost" in event["detail"]
