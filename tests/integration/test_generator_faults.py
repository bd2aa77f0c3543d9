"""The generator with faults: deliberate ones, invalid input, broker outages."""

import json
import time
from collections import Counter

import numpy as np
import pytest

from schemas import catalogue, content, fault_rules
from schemas.codec import DecodeError
from schemas.commands import Prepare, Start, Stop
from schemas.events import LoadFinished, Ready, ServiceStarted
from schemas.load import PeriodicBurst
from schemas.protocol import Faults, Phases
from services.definitions.trusted import keep_definitions
from services.runtime.events import open_events
from tests.integration.kafka_broker import breakable_broker
from tests.integration.runs import next_phases, readers, run_plan
from tests.integration.service_process import has_event, running_service, started
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.integration

FLOW, _SPEED = TRAFFIC.topics

RATE = 2_000
OUTAGE_S = 10
PHASES = Phases(warm_up_s=2, measure_s=30, cool_down_s=4)


def sequences_in(settings, run_id):
    """Sequence numbers of a run in the input topics, and how often each occurs."""
    found = Counter()
    with readers(settings, *TRAFFIC.topics) as inputs:
        for reader in inputs:
            found.update(record["sequence"] for record in reader.everything(run_id))
    return found


@pytest.mark.faults
@pytest.mark.parametrize(
    ("why", "delivery_timeout_s"),
    [
        ("long enough to outlast the outage: everything arrives", 60),
        ("shorter than the outage: what is lost is counted", 2),
    ],
)
def test_a_killed_broker_costs_only_what_is_counted_as_failed(tmp_path, why, delivery_timeout_s):
    variables = {"TIDEGAUGE_GENERATOR_DELIVERY_TIMEOUT_S": str(delivery_timeout_s)}
    with breakable_broker(tmp_path, input_partitions=2) as broker:
        settings, run_id = broker.settings, "outage"
        with (
            running_service(settings, "generator", **variables),
            readers(settings, catalogue.LIFECYCLE, FLOW) as (lifecycle, flow),
        ):
            lifecycle.until("", has_event(ServiceStarted.name))
            bus = open_events(settings, "tests")
            bus.send(Prepare(run_id=run_id, plan=run_plan(run_id, rate=RATE, phases=PHASES)))
            lifecycle.until(run_id, has_event(Ready.name))
            plan = next_phases(PHASES)
            bus.send(Start(run_id=run_id, phases=plan))
            flow.until(run_id, lambda records: len(records) >= 2 * RATE)
            broker.kill()
            until_s = time.monotonic() + OUTAGE_S
            while time.monotonic() < until_s:  # the outage itself must last
                flow.read()
            broker.start()
            broker.await_answer()
            ended = lifecycle.until(run_id, has_event(LoadFinished.name), deadline_s=90)[-1]
        detail = json.loads(ended["detail"])
        found = sequences_in(settings, run_id)

    intended = RATE * PHASES.total_s
    assert detail["intended"] == intended
    assert detail["acknowledged"] + detail["failed"] == intended, why
    assert set(found.values()) == {1}  # idempotent: no duplicates
    assert set(found) <= set(range(intended))
    # A timed-out record may have been written before its acknowledgement was lost.
    assert detail["acknowledged"] <= len(found) <= intended
    assert max(found) == intended - 1  # sending continues after the broker's return
    assert (detail["failed"] > 0) == (delivery_timeout_s < OUTAGE_S)


@pytest.fixture
def own_broker(tmp_path):
    """Undecodable records would disturb other readers of the shared broker's topics."""
    with breakable_broker(tmp_path, input_partitions=2) as broker:
        yield broker.settings


def test_faults_are_found_where_the_rule_says(own_broker):
    broker = own_broker
    rule = Faults(late=0.1, late_ms=500, duplicate=0.1, undecodable=0.1, impossible=0.1)
    run_id, seed = "faulty", 11
    plan = run_plan(run_id, rate=100, seed=seed, faults=rule)
    with (
        running_service(broker, "generator", TIDEGAUGE_INSTANCE="for-faults"),
        readers(broker, catalogue.LIFECYCLE, *TRAFFIC.topics) as (lifecycle, *inputs),
    ):
        lifecycle.until("", started("for-faults"))
        bus = open_events(broker, "tests")
        bus.send(Prepare(run_id=run_id, plan=plan))
        lifecycle.until(run_id, has_event(Ready.name))
        bus.send(Start(run_id=run_id, phases=next_phases()))
        detail = json.loads(lifecycle.until(run_id, has_event(LoadFinished.name))[-1]["detail"])
        for reader, topic in zip(inputs, TRAFFIC.topics, strict=True):
            while len(reader.messages) < sum(detail["end_offsets"][topic]):
                reader.read()

    kinds = fault_rules.kinds(rule, seed, np.arange(800))
    expected = Counter({n: 2 if kinds[n] == content.DUPLICATE else 1 for n in range(800)})
    for sequence in range(800):
        if kinds[sequence] == content.UNDECODABLE:
            del expected[sequence]
    found, undecodable, impossible = Counter(), 0, set()
    for message in inputs[0].messages + inputs[1].messages:
        try:
            record = TRAFFIC.codec.decode(message.value())[1]
        except DecodeError:
            undecodable += 1
            continue
        if record["run_id"] == run_id:
            found[record["sequence"]] += 1
            if -1 in (record.get("flow_vehicles_per_hour"), record.get("speed_km_per_hour")):
                impossible.add(record["sequence"])
    assert found == expected
    counts = Counter(content.KINDS[kind] for kind in kinds.tolist())
    del counts["none"]
    assert detail["faults"] == counts
    assert undecodable == counts["undecodable"]
    assert impossible == {n for n in range(800) if kinds[n] == content.IMPOSSIBLE}
    assert (detail["intended"], detail["acknowledged"], detail["failed"]) == (800, 800, 0)


def test_two_instances_share_a_load_and_a_burst_says_how_late_it_left(broker):
    run_id = "two-generators"
    load = PeriodicBurst(rate_per_second=100, burst_records=2_000, period_s=3)
    plan = run_plan(run_id, load=load)

    def instance(index):
        return {
            "TIDEGAUGE_INSTANCE": f"generator-{index}",
            "TIDEGAUGE_GENERATOR_INSTANCE_INDEX": str(index),
            "TIDEGAUGE_GENERATOR_INSTANCE_COUNT": "2",
        }

    ports = {"TIDEGAUGE_BASE_PORT": str(broker.base_port + 100)}
    ports["TIDEGAUGE_KAFKA_BOOTSTRAP"] = broker.bootstrap
    with (
        running_service(broker, "generator", **instance(0)),
        running_service(broker, "generator", **instance(1) | ports),
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
    ):
        lifecycle.until("", both(ServiceStarted.name))
        bus = open_events(broker, "tests")
        bus.send(Prepare(run_id=run_id, plan=plan))
        lifecycle.until(run_id, both(Ready.name))
        bus.send(Start(run_id=run_id, phases=next_phases()))
        events = lifecycle.until(run_id, both(LoadFinished.name))
    finished = [json.loads(e["detail"]) for e in events if e["event"] == LoadFinished.name]
    # Eight seconds of 100, and bursts at 3 and 6 s.
    assert sorted(f["instance_index"] for f in finished) == [0, 1]
    assert sum(f["intended"] for f in finished) == 4_800
    assert sum(f["acknowledged"] for f in finished) == 4_800
    assert all("Bursts of 2000 records within 175 ms" in f["messages"][1] for f in finished)
    assert sequences_in(broker, run_id) == Counter(range(4_800))


def both(event):
    """Whether two instances have sent this event."""
    return lambda records: (
        {"generator-0", "generator-1"} <= {r["producer"] for r in records if r["event"] == event}
    )


def test_bad_rows_of_a_file_are_dead_letters_and_the_rest_is_sent(broker, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "site,at,cars,kmh\n"
        "A,2026-01-01T00:00:00Z,100,50\n"
        "A,2026-01-01T00:01:00Z,many,50\n"
        "B,2026-01-01T00:00:00Z,300,70.5\n"
        "B,2026-01-01T00:01:00Z,300\n"
    )
    columns = {
        "measurement_id": "site",
        "observed_at": "at",
        "flow_vehicles_per_hour": "cars",
        "speed_km_per_hour": "kmh",
    }
    run_id = "of-a-file"
    content = {"source": "file", "path": str(path), "columns": columns}
    plan = run_plan(run_id, rate=4, content=content)
    keep_definitions(broker.data, [plan.request.workload], [])
    with (
        running_service(broker, "generator", TIDEGAUGE_INSTANCE="for-files"),
        readers(broker, catalogue.LIFECYCLE, catalogue.DEAD_LETTER, FLOW) as opened,
    ):
        lifecycle, dead, flow = opened
        lifecycle.until("", started("for-files"))
        bus = open_events(broker, "tests")
        bus.send(Prepare(run_id=run_id, plan=plan))
        lifecycle.until(run_id, has_event(Ready.name))
        letters = dead.until(run_id, lambda records: len(records) >= 2)
        bus.send(Start(run_id=run_id, phases=next_phases()))
        flows = flow.until(run_id, lambda records: len(records) >= 4)
        bus.send(Stop(run_id=run_id))
    assert [(letter["topic"], letter["offset"]) for letter in letters] == [
        (str(path), 3),
        (str(path), 5),
    ]
    assert letters[0]["reason"] == "cars is 'many', which is not a number"
    assert letters[1]["value"] == b"B,2026-01-01T00:01:00Z,300"
    assert {(r["measurement_id"], r["flow_vehicles_per_hour"]) for r in flows} == {
        ("A", 100),
        ("B", 300),
    }
