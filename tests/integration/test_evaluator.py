"""The evaluator as a process, on a real broker, judged by hand-written inputs and outputs.

Counts are literal. Latencies are checked against the LogAppendTimes that the test itself reads
from the topics.
"""

import json
import signal
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from schemas import catalogue, codec, protocol
from schemas.protocol import (
    Judgement,
    Load,
    LoadFinished,
    PhasePlan,
    Phases,
    Pipeline,
    RunPlan,
    RunRequest,
    Stop,
    Validity,
    Workload,
)
from services.runtime.events import open_events
from services.runtime.kafka import (
    admin_client,
    assigned_consumer,
    end_offsets,
    idempotent_producer,
)
from services.runtime.topics import ensure_topics
from tests.integration.kafka_broker import broker  # noqa: F401
from tests.integration.service_process import (
    Reader,
    has_event,
    running_service,
    send_probes,
)

pytestmark = pytest.mark.integration

# Warm-up 1 s, then measure; the load "starts" 10 s before the test, so that outputs which no
# input explains, which have the phase of their own time, are in the measure phase, too.
PHASES = Phases(warm_up_s=1, measure_s=3_600, cool_down_s=3)
DEADLINE_MS, GIVE_UP_MS = 4_000, 5_000
OUTPUTS = tuple(catalogue.output_topic("p", stage) for stage in protocol.STAGES)
COMMON = {"num_lanes": 1, "latitude": 52.0, "longitude": 4.0, "period_s": 60}


def request_of(run_id):
    workload = Workload(
        name="test",
        summary="Hand-written.",
        load=Load(rate_per_second=1),
        phases=PHASES,
        judgement=Judgement(deadline_ms=DEADLINE_MS, give_up_ms=GIVE_UP_MS),
        validity=Validity(max_clock_behind_ms=60_000),  # few probes have to do on any machine
    )
    pipeline = Pipeline(name="p", summary="-", mode="real-time", implementation="customised")
    return RunRequest(
        run_id=run_id, workload=workload, pipelines=(pipeline,), stages=protocol.STAGES
    )


@contextmanager
def readers(settings, *topics):
    found = [Reader(settings, topic) for topic in topics]
    try:
        yield found
    finally:
        for reader in found:
            reader.close()


def ends(settings, *topics):
    consumer = assigned_consumer(settings, "tests-ends")
    try:
        return {topic: end_offsets(consumer, topic) for topic in topics}
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def evaluator(broker, tmp_path_factory):  # noqa: F811
    ensure_topics(admin_client(broker, "tests"), catalogue.output_topics("p", partitions=2))
    data = tmp_path_factory.mktemp("evaluator")
    with (
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
        running_service(broker, "evaluator", data) as process,
    ):
        lifecycle.until("", has_event(protocol.SERVICE_STARTED))
        yield broker
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        lifecycle.until("", has_event(protocol.SERVICE_STOPPED))


# Site a, one lane, seconds 0 to 2; site b with second 0 only: (site, second, flow, speed).
# The first is scheduled in the warm-up, all else is measured.
LANES = [("a", 0, 100, 80.0), ("a", 1, 200, 50.0), ("a", 2, 300, 60.0), ("b", 0, 7, 9.0)]


class HandWritten:
    """Every record of one run, encoded. Inputs by (site, second, kind)."""

    def __init__(self, run_id, start_ms):
        self.run_id = run_id
        self.start_ms = start_ms
        self.inputs = {}
        for number, (site, second, flow, speed) in enumerate(LANES):
            fields = {
                **COMMON,
                "run_id": run_id,
                "measurement_id": site,
                "lane": "lane1",
                "observed_at": start_ms + 1_000 * second,
                "accuracy_percent": 90,
                "scheduled_at": (start_ms + (2_000 if number else 0)) * 1_000,
            }
            of_flow = {"sequence": 2 * number, "flow_vehicles_per_hour": flow}
            of_speed = {"sequence": 2 * number + 1, "speed_km_per_hour": speed}
            self.inputs[site, second, "flow"] = fields | of_flow
            self.inputs[site, second, "speed"] = fields | of_speed

    def encoded(self, key):
        return codec.encode(f"traffic_{key[2]}", self.inputs[key])

    def parsed(self, key, **changes):
        fields = {k: v for k, v in self.inputs[key].items() if k != "scheduled_at"}
        empty = {"flow_vehicles_per_hour": None, "speed_km_per_hour": None}
        return codec.encode("output_parse", {**empty, **fields, **changes})

    def joined(self, site, second):
        flow, speed = self.inputs[site, second, "flow"], self.inputs[site, second, "speed"]
        names = [field["name"] for field in codec.schema("output_join").parsed["fields"]]
        both = flow | speed
        return codec.encode("output_join", {name: both[name] for name in names})

    def tumbled(self, site, second, flow, speed):
        sums = {"accumulated_flow_vehicles_per_hour": flow, "average_speed_km_per_hour": speed}
        return self._window("output_tumbling", site, second, 1, lanes=1, **sums)

    def slid(self):
        flow = {"flow_change_short": 0.5, "flow_change_long": 2.0}
        speed = {"speed_change_short": 0.2, "speed_change_long": -0.25}
        return self._window("output_sliding", "a", 0, 3, **flow, **speed)

    def _window(self, name, site, second, length_s, **values):
        start_ms = self.start_ms + 1_000 * second
        times = {"window_start": start_ms, "window_end": start_ms + 1_000 * length_s}
        head = {"run_id": self.run_id, "measurement_id": site}
        return codec.encode(name, head | times | values)

    def explained_outputs(self):
        """Topic, value and inputs of every first output that its inputs explain, but one."""
        for key in self.inputs:
            yield "output.p.ingest", self.encoded(key), (key,)
            wrong = {"accuracy_percent": 91} if key == ("b", 0, "flow") else {}
            yield "output.p.parse", self.parsed(key, **wrong), (key,)
        for site, second, flow, speed in LANES:
            both = ((site, second, "flow"), (site, second, "speed"))
            if (site, second) in (("a", 0), ("a", 1)):
                yield "output.p.join", self.joined(site, second), both
            yield "output.p.tumbling", self.tumbled(site, second, flow, speed), both
        of_a = tuple(key for key in self.inputs if key[0] == "a")
        yield "output.p.sliding", self.slid(), of_a

    def late_output(self):
        return "output.p.join", self.joined("b", 0), (("b", 0, "flow"), ("b", 0, "speed"))


def write(settings, records):
    """Write (topic, value) pairs; all have their LogAppendTime on return."""
    producer = idempotent_producer(settings, "tests-writer")
    for topic, value in records:
        producer.produce(topic, value, b"a")
    assert producer.flush(10) == 0


def append_times(settings, topics):
    """LogAppendTime of the first record with a value in a topic, as the topics say."""
    times = {}
    counts = {topic: sum(end) for topic, end in ends(settings, *topics).items()}
    with readers(settings, *topics) as found:
        for topic, reader in zip(topics, found, strict=True):
            deadline = time.monotonic() + 20
            while len(reader.messages) < counts[topic]:
                assert time.monotonic() < deadline
                reader.read()
            for message in reader.messages:
                times.setdefault((topic, message.value()), message.timestamp()[1])
    return times


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


def expected_latencies(run, outputs, times):
    totals = Counter()
    for topic, value, keys in outputs:
        out_ms = times[topic, value]
        in_ms = [times[f"traffic.{key[2]}", run.encoded(key)] for key in keys]
        scheduled_ms = max(run.inputs[key]["scheduled_at"] for key in keys) // 1_000
        phase = "measure" if scheduled_ms >= run.start_ms + 1_000 else "warm_up"
        stage, second = topic.rpartition(".")[2], out_ms // 1_000 * 1_000
        # Halves round up: the mean of n whole numbers in whole numbers.
        mean = (2 * (len(in_ms) * out_ms - sum(in_ms)) + len(in_ms)) // (2 * len(in_ms))
        totals[stage, "latest", phase, second, out_ms - max(in_ms)] += 1
        totals[stage, "mean", phase, second, mean] += 1
        totals[stage, "event_time", phase, second, out_ms - scheduled_ms] += 1
    return totals


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
NO_RECORD = codec.header("output_sliding") + b"\x02"


def test_a_run_is_judged_exactly(evaluator):
    run_id, bus = "judged", open_events(evaluator, "tests")
    run = HandWritten(run_id, (int(time.time()) - 10) * 1_000)
    other = HandWritten("someone-else", run.start_ms)
    plan = RunPlan(
        request=request_of(run_id),
        start_offsets=ends(evaluator, *catalogue.INPUTS, *OUTPUTS),
    )
    topics = (catalogue.LIFECYCLE, catalogue.VERDICTS, catalogue.LATENCY, catalogue.DEAD_LETTER)
    with readers(evaluator, *topics) as (lifecycle, verdicts, latencies, dead):
        bus.command("prepare", run_id, plan)
        send_probes(evaluator, run_id)
        lifecycle.until(run_id, has_event(protocol.READY))
        bus.command("start", run_id, PhasePlan(load_start_ms=run.start_ms, phases=PHASES))

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
            intended=8, acknowledged=8, failed=0, end_offsets=ends(evaluator, *catalogue.INPUTS)
        )
        verdicts.until(run_id, lambda e: verdict_totals(e) == VERDICTS_BEFORE_THE_LATE_ONE)

        late = run.late_output()
        write(evaluator, [late[:2]])
        verdicts.until(run_id, lambda events: verdict_totals(events) == VERDICTS)
        assert not has_event(protocol.DRAINED)(lifecycle.records(run_id))
        bus.command("drain", run_id, finished)
        drained = lifecycle.until(run_id, has_event(protocol.DRAINED))[-1]
        bus.command("stop", run_id, Stop())

        times = append_times(evaluator, (*catalogue.INPUTS, *OUTPUTS))
        expected = expected_latencies(run, [*explained, late], times)
        found = latencies.until(run_id, lambda e: latency_totals(e).total() == expected.total())
        letters = dead.until(run_id, lambda records: len(records) == 2)

    assert latency_totals(found) == expected
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
        ("output.p.sliding", NO_RECORD, "output_sliding v1 does not decode"),
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
    offsets = ends(evaluator, *catalogue.INPUTS, *OUTPUTS)
    with readers(evaluator, catalogue.LIFECYCLE, catalogue.CONTROL) as (lifecycle, control):
        bus.command("prepare", run_id, RunPlan(request=request_of(run_id), start_offsets=offsets))
        send_probes(evaluator, run_id)
        lifecycle.until(run_id, has_event(protocol.READY))
        bus.command("start", run_id, PhasePlan(load_start_ms=run.start_ms, phases=PHASES))
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
        bus.command("stop", run_id, Stop())


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
        bus.command("prepare", run_id, plan)
        failed = lifecycle.until(run_id, has_event(protocol.FAILED))[-1]
    assert json.loads(failed["detail"]) == {"reason": "topic output.p.nowhere is not there"}


def test_a_command_whose_body_is_wrong_fails_the_run_with_a_reason(evaluator):
    bus = open_events(evaluator, "tests")
    with readers(evaluator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.command("prepare", "broken", Stop(reason="no plan"))
        failed = lifecycle.until("broken", has_event(protocol.FAILED))[-1]
        assert "could not prepare" in json.loads(failed["detail"])["reason"]
        plan = RunPlan(
            request=request_of("after"), start_offsets=ends(evaluator, *catalogue.INPUTS, *OUTPUTS)
        )
        bus.command("prepare", "after", plan)
        send_probes(evaluator, "after")
        lifecycle.until("after", has_event(protocol.READY))
        bus.command("stop", "after", Stop())
