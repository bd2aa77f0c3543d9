"""The generator as a process, with a real broker."""

import json
import signal
from collections import Counter, defaultdict

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from schemas import catalogue
from schemas.commands import Prepare, Start, Stop
from schemas.events import Failed, LoadFinished, Ready, ServiceStopped
from services.runtime.events import open_events
from tests.integration.runs import next_phases, readers, run_plan
from tests.integration.service_process import has_event, running_service, started
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.integration

FLOW, SPEED = TRAFFIC.topics


@pytest.fixture(scope="module")
def generator(broker):
    with (
        running_service(broker, "generator", TIDEGAUGE_INSTANCE="for-loads") as process,
        readers(broker, catalogue.LIFECYCLE) as r,
    ):
        r[0].until("", started("for-loads"))
        yield broker
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        r[0].until("", has_event(ServiceStopped.name))


def test_a_short_load_arrives_whole_and_its_statistics_add_up(generator):
    run_id, plan = "short", next_phases()
    bus = open_events(generator, "tests")
    topics = (catalogue.LIFECYCLE, catalogue.GENERATOR, *TRAFFIC.topics)
    with readers(generator, *topics) as (lifecycle, statistics, flow, speed):
        bus.send(Prepare(run_id=run_id, plan=run_plan(run_id, rate=100)))
        lifecycle.until(run_id, has_event(Ready.name))
        flow.until(f"{run_id}-probe", lambda records: len(records) >= 6)
        plan = next_phases()
        bus.send(Start(run_id=run_id, phases=plan))
        ended = lifecycle.until(run_id, has_event(LoadFinished.name))[-1]
        flows = flow.until(run_id, lambda records: len(records) >= 400)
        speeds = speed.until(run_id, lambda records: len(records) >= 400)
        events = statistics.until(run_id, lambda all_: sum(e["acknowledged"] for e in all_) >= 800)
        flow.read()
        speed.read()

    records = flows + speeds
    assert sorted(record["sequence"] for record in records) == list(range(800))
    for record in records:
        due_us = plan.load_start_ms * 1000 + record["sequence"] * 10_000
        assert record["scheduled_at"] == due_us
        assert record["observed_at"] == due_us // 1_000_000 * 1000
    assert incomplete(flows, speeds) == []
    for message in flow.messages + speed.messages:
        assert message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    assert partitions_by_site(flow) == partitions_by_site(speed)

    detail = json.loads(ended["detail"])
    assert (detail["intended"], detail["acknowledged"], detail["failed"]) == (800, 800, 0)
    assert detail["end_offsets"] == {FLOW: ends(flow), SPEED: ends(speed)}
    assert sum(event["intended"] for event in events) == 800
    assert sum(event["sent"] for event in events) == 800
    assert sum(sum(event["counts"]) for event in events) == 800
    assert sum(event["failed"] for event in events) == 0
    assert min(min(event["send_delays_us"], default=0) for event in events) >= 0
    intended = Counter()
    for event in events:
        intended[event["phase"]] += event["intended"]
    assert intended == {"warm_up": 200, "measure": 300, "cool_down": 300}


def incomplete(flows, speeds):
    lanes, width = defaultdict(set), {}
    for kind, records in (("flow", flows), ("speed", speeds)):
        for record in records:
            window = (record["measurement_id"], record["observed_at"])
            lanes[window].add((kind, record["lane"]))
            width[window] = record["num_lanes"]
    return [window for window, seen in lanes.items() if len(seen) != 2 * width[window]]


def partitions_by_site(reader):
    return {message.key(): message.partition() for message in reader.messages}


def ends(reader):
    highest = Counter({0: 0, 1: 0})
    for message in reader.messages:
        highest[message.partition()] = max(highest[message.partition()], message.offset() + 1)
    return [highest[0], highest[1]]


def two_sets(records):
    return sum(record["measurement_id"] in ("probe-0", "probe-1") for record in records) == 6


def test_a_probe_set_is_three_complete_seconds_of_a_site_of_its_own(generator):
    run_id = "probing"
    bus = open_events(generator, "tests")
    topics = (catalogue.LIFECYCLE, *TRAFFIC.topics)
    with readers(generator, *topics) as (lifecycle, flow, speed):
        bus.send(Prepare(run_id=run_id, plan=run_plan(run_id, rate=100)))
        lifecycle.until(run_id, has_event(Ready.name))
        probe = f"{run_id}-probe"
        flows = flow.until(probe, two_sets)
        speeds = speed.until(probe, two_sets)
        bus.send(Stop(run_id=run_id))
    for unordered in (flows, speeds):
        # Partitions are read one after another, so sets arrive in any order, each in its own.
        records = [r for n in (0, 1) for r in unordered if r["measurement_id"] == f"probe-{n}"]
        assert [r["measurement_id"] for r in records] == ["probe-0"] * 3 + ["probe-1"] * 3
        first, second, third = (record["observed_at"] for record in records[:3])
        assert (second - first, third - second) == (1000, 1000)
        assert {record["sequence"] for record in records} == {-1}


def test_a_stopped_load_ends_without_finishing(generator):
    run_id = "stopped"
    bus = open_events(generator, "tests")
    topics = (catalogue.LIFECYCLE, catalogue.GENERATOR, FLOW)
    with readers(generator, *topics) as (lifecycle, statistics, flow):
        bus.send(Prepare(run_id=run_id, plan=run_plan(run_id, rate=100)))
        lifecycle.until(run_id, has_event(Ready.name))
        plan = next_phases()
        bus.send(Start(run_id=run_id, phases=plan))
        flow.until(run_id, bool)
        bus.send(Stop(run_id=run_id))
        statistics.until(run_id, bool)
        # The next run is prepared only after the stopped one has been abandoned.
        bus.send(Prepare(run_id="after-stop", plan=run_plan("after-stop", rate=100)))
        lifecycle.until("after-stop", has_event(Ready.name))
        bus.send(Stop(run_id="after-stop"))
        flow.read()
        assert not has_event(LoadFinished.name)(lifecycle.records(run_id))
        last_due_ms = max(record["scheduled_at"] for record in flow.records(run_id)) // 1000
        assert last_due_ms < plan.load_end_ms - 1000


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the wrong body
def test_a_command_whose_body_is_wrong_fails_the_run_with_a_reason(generator):
    bus = open_events(generator, "tests")
    with readers(generator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare.model_construct(run_id="broken", plan={"reason": "no plan"}))
        failed = lifecycle.until("broken", has_event(Failed.name))[-1]
    assert "could not prepare" in json.loads(failed["detail"])["reason"]
