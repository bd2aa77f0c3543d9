"""The evaluator as a process, with a real broker and hand-written inputs and outputs.

Counts are literal. Latencies are checked against the LogAppendTimes that the test itself reads from
the topics.
"""

import json
import signal
import time
import urllib.request
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from prometheus_client.parser import text_string_to_metric_families

from schemas import catalogue, protocol
from schemas.commands import Drain, Prepare, Start, Stop
from schemas.events import Drained, Failed, LoadFinished, Ready, ServiceStarted, ServiceStopped
from schemas.protocol import PhasePlan, RunPlan
from services.runtime.events import open_events
from services.runtime.kafka import admin_client, ensure_topics
from tests.integration.hand_written import (
    PHASES,
    HandWritten,
    append_times,
    ends,
    expected_latencies,
    request_of,
    write,
)
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.local_stack.stand_in import eventually
from tests.integration.runs import readers
from tests.integration.service_process import has_event, running_service, send_probes
from tests.traffic import CODEC, TRAFFIC, output_topics

pytestmark = pytest.mark.integration

OUTPUTS = tuple(catalogue.output_topic("p", stage) for stage in TRAFFIC.stage_names)


@pytest.fixture(scope="module")
def evaluator(broker, tmp_path_factory):
    ensure_topics(admin_client(broker, "tests"), output_topics("p", partitions=2))
    data = tmp_path_factory.mktemp("evaluator")
    with (
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
        running_service(broker, "evaluator", data) as process,
    ):
        lifecycle.until("", has_event(ServiceStarted.name))
        yield broker
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        lifecycle.until("", has_event(ServiceStopped.name))


def verdict_totals(events):
    totals = Counter()
    for event in events:
        for verdict in protocol.VERDICTS:
            totals[event["stage"], event["phase"], verdict] += event[verdict]
    return {where: count for where, count in totals.items() if count}


def latency_totals(events):
    totals = Counter()
    for event in events:
        for latency_ms, count in zip(event["latencies_ms"], event["counts"], strict=True):
            where = (event["stage"], event["definition"], event["phase"], event["second"])
            totals[*where, latency_ms] += count
    return totals


def scraped_verdicts(settings):
    """Verdicts without retracted ones, as Prometheus reads them."""
    address = f"http://127.0.0.1:{settings.port('evaluator')}/metrics"
    with urllib.request.urlopen(address) as page:
        families = text_string_to_metric_families(page.read().decode())
    totals = Counter()
    for family in families:
        for name, labels, value, *_ in family.samples:
            where = tuple(labels.get(label) for label in ("stage", "phase", "verdict"))
            if name == "tidegauge_verdicts_total":
                totals[where] += int(value)
            elif name == "tidegauge_verdicts_retracted_total":
                totals[where] -= int(value)
    return {where: count for where, count in totals.items() if count}


VERDICTS_BEFORE_THE_LATE_ONE = {
    ("ingest", "warm_up", "exact"): 2,
    ("ingest", "measure", "exact"): 6,
    ("ingest", "measure", "duplicate"): 1,
    ("parse", "warm_up", "exact"): 2,
    ("parse", "measure", "exact"): 5,
    ("parse", "measure", "wrong"): 1,
    ("join", "warm_up", "exact"): 1,
    ("join", "measure", "exact"): 1,
    ("join", "measure", "missing"): 2,
    ("tumbling", "warm_up", "exact"): 1,
    ("tumbling", "measure", "exact"): 3,
    ("tumbling", "measure", "unexpected"): 1,
    ("sliding", "measure", "exact"): 1,
    ("sliding", "measure", "unexpected"): 1,
}
VERDICTS = VERDICTS_BEFORE_THE_LATE_ONE | {
    ("join", "measure", "missing"): 1,
    ("join", "measure", "late"): 1,
}
NO_RECORD = CODEC.header("output_sliding") + b"\x02"


def test_a_run_is_judged_exactly(evaluator):
    run_id, bus = "judged", open_events(evaluator, "tests")
    run = HandWritten(run_id, (int(time.time()) - 10) * 1_000)
    other = HandWritten("someone-else", run.start_ms)
    plan = RunPlan(
        request=request_of(run_id),
        start_offsets=ends(evaluator, *TRAFFIC.topics, *OUTPUTS),
    )
    topics = (catalogue.LIFECYCLE, catalogue.VERDICTS, catalogue.LATENCY, catalogue.DEAD_LETTER)
    with readers(evaluator, *topics) as (lifecycle, verdicts, latencies, dead):
        bus.send(Prepare(run_id=run_id, plan=plan))
        send_probes(evaluator, run_id)
        lifecycle.until(run_id, has_event(Ready.name))
        bus.send(Start(run_id=run_id, phases=PhasePlan(load_start_ms=run.start_ms, phases=PHASES)))

        write(evaluator, [(f"traffic.{key[2]}", run.encoded(key)) for key in run.inputs])
        stray = other.encoded(("a", 0, "flow"))
        write(evaluator, [("traffic.flow", stray), ("traffic.flow", b"no record")])
        explained = list(run.explained_outputs())
        write(evaluator, [(topic, value) for topic, value, _keys in explained])
        write(
            evaluator,
            [
                ("output.p.ingest", run.encoded(("a", 1, "flow"))),  # again
                ("output.p.ingest", stray),  # of another run
                ("output.p.tumbling", run.tumbled("nowhere", 0, 1, 1.0)),  # nothing explains it
                ("output.p.sliding", NO_RECORD),
            ],
        )
        finished = LoadFinished(
            intended=8, acknowledged=8, failed=0, end_offsets=ends(evaluator, *TRAFFIC.topics)
        )
        verdicts.until(run_id, lambda e: verdict_totals(e) == VERDICTS_BEFORE_THE_LATE_ONE)

        late = run.late_output()
        write(evaluator, [late[:2]])
        verdicts.until(run_id, lambda events: verdict_totals(events) == VERDICTS)
        assert not has_event(Drained.name)(lifecycle.records(run_id))
        bus.send(Drain(run_id=run_id, end_offsets=finished.end_offsets))
        drained = lifecycle.until(run_id, has_event(Drained.name))[-1]
        bus.send(Stop(run_id=run_id))

        times = append_times(evaluator, (*TRAFFIC.topics, *OUTPUTS))
        expected = expected_latencies(run, [*explained, late], times)
        found = latencies.until(run_id, lambda e: latency_totals(e).total() == expected.total())
        letters = dead.until(run_id, lambda records: len(records) == 2)

    assert latency_totals(found) == expected
    eventually(lambda: scraped_verdicts(evaluator) == VERDICTS, "its metrics are as published")
    none = dict.fromkeys(protocol.VERDICTS, 0)
    assert json.loads(drained["detail"])["verdicts"] == {
        "p": {
            "ingest": none | {"exact": 6, "duplicate": 1},
            "parse": none | {"exact": 5, "wrong": 1},
            "join": none | {"exact": 1, "missing": 1, "late": 1},
            "tumbling": none | {"exact": 3, "unexpected": 1},
            "sliding": none | {"exact": 1, "unexpected": 1},
        }
    }
    reasons = {(one["topic"], one["value"], one["reason"].split(": ")[0]) for one in letters}
    assert reasons == {
        (
            "traffic.flow",
            b"no record",
            "not in Avro single-object encoding (marker C3 01 missing)",
        ),
        ("output.p.sliding", NO_RECORD, "output_sliding v1 cannot be decoded"),
    }


def test_throughput_counts_the_records_of_the_run_only(evaluator):
    with readers(evaluator, catalogue.THROUGHPUT) as (throughput,):
        events = throughput.until("judged", lambda e: sum(one["records"] for one in e) >= 33)
    records = Counter()
    for event in events:
        records[event["topic"]] += event["records"]
    assert records == {
        "traffic.flow": 4,
        "traffic.speed": 4,
        "output.p.ingest": 9,
        "output.p.parse": 8,
        "output.p.join": 3,
        "output.p.tumbling": 5,
        "output.p.sliding": 1,
    }


def test_a_command_seen_twice_is_carried_out_once(evaluator):
    run_id, bus = "twice", open_events(evaluator, "tests")
    run = HandWritten(run_id, (int(time.time()) - 10) * 1_000)
    offsets = ends(evaluator, *TRAFFIC.topics, *OUTPUTS)
    with readers(evaluator, catalogue.LIFECYCLE, catalogue.CONTROL) as (lifecycle, control):
        bus.send(
            Prepare(run_id=run_id, plan=RunPlan(request=request_of(run_id), start_offsets=offsets))
        )
        send_probes(evaluator, run_id)
        lifecycle.until(run_id, has_event(Ready.name))
        bus.send(Start(run_id=run_id, phases=PhasePlan(load_start_ms=run.start_ms, phases=PHASES)))
        flow = ("b", 0, "flow")
        write(evaluator, [("traffic.flow", run.encoded(flow))])
        write(evaluator, [("output.p.ingest", run.encoded(flow))])
        with readers(evaluator, catalogue.VERDICTS) as (verdicts,):
            exact = {("ingest", "measure", "exact"): 1}
            verdicts.until(run_id, lambda events: verdict_totals(events) == exact)
            control.until(run_id, lambda commands: len(commands) == 2)
            again = [m.value() for m in control.messages][-2:]
            write(evaluator, [(catalogue.CONTROL, value) for value in again])
            write(evaluator, [("output.p.ingest", run.encoded(flow))])
            twice = exact | {("ingest", "measure", "duplicate"): 1}
            events = verdicts.until(run_id, lambda events: len(verdict_totals(events)) == 2)
            assert (
                verdict_totals({**event} for event in events if event["stage"] == "ingest") == twice
            )
        bus.send(Stop(run_id=run_id))


def test_its_group_commits_nothing_that_would_stay(evaluator):
    admin = admin_client(evaluator, "tests")
    found = [group.group_id for group in admin.list_consumer_groups().result(10).valid]
    (group,) = [each for each in found if each.startswith("tidegauge-evaluator-")]
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    assert asked[group].result(10).topic_partitions == []


def test_a_topic_that_is_not_there_fails_the_run_with_a_reason(evaluator):
    run_id, bus = "no-topic", open_events(evaluator, "tests")
    plan = RunPlan(request=request_of(run_id), start_offsets={"output.p.nowhere": (0,)})
    with readers(evaluator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare(run_id=run_id, plan=plan))
        failed = lifecycle.until(run_id, has_event(Failed.name))[-1]
    assert json.loads(failed["detail"]) == {"reason": "topic output.p.nowhere does not exist"}


def test_an_output_topic_with_the_time_of_its_producer_fails_the_run(evaluator):
    run_id, bus = "create-time", open_events(evaluator, "tests")
    own = output_topics("stamped")
    topics = [replace(one, log_append_time=one.name != own[0].name) for one in own]
    ensure_topics(admin_client(evaluator, "tests"), topics)
    request = request_of(run_id)
    pipeline = request.pipelines[0].model_copy(update={"name": "stamped"})
    plan = RunPlan(
        request=request.model_copy(update={"pipelines": (pipeline,)}),
        start_offsets=ends(evaluator, *TRAFFIC.topics, *(one.name for one in own)),
    )
    run = HandWritten(run_id, (int(time.time()) - 10) * 1_000)
    with readers(evaluator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare(run_id=run_id, plan=plan))
        send_probes(evaluator, run_id)
        lifecycle.until(run_id, has_event(Ready.name))
        bus.send(Start(run_id=run_id, phases=PhasePlan(load_start_ms=run.start_ms, phases=PHASES)))
        write(evaluator, [(own[0].name, run.encoded(("a", 0, "flow")))])
        failed = lifecycle.until(run_id, has_event(Failed.name))[-1]
    said = f"topic {own[0].name} does not use LogAppendTime"
    assert json.loads(failed["detail"]) == {"reason": said}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the wrong body
def test_a_command_whose_body_is_wrong_fails_the_run_with_a_reason(evaluator):
    bus = open_events(evaluator, "tests")
    with readers(evaluator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare.model_construct(run_id="broken", plan={"reason": "no plan"}))
        failed = lifecycle.until("broken", has_event(Failed.name))[-1]
        assert "could not prepare" in json.loads(failed["detail"])["reason"]
        plan = RunPlan(
            request=request_of("after"), start_offsets=ends(evaluator, *TRAFFIC.topics, *OUTPUTS)
        )
        bus.send(Prepare(run_id="after", plan=plan))
        send_probes(evaluator, "after")
        lifecycle.until("after", has_event(Ready.name))
        bus.send(Stop(run_id="after"))
