"""One run with hand-written inputs and outputs, and its expected results."""

import time
from collections import Counter

from schemas.codec import DecodeError
from schemas.load import Constant
from schemas.protocol import (
    Judgement,
    Phases,
    Pipeline,
    RunRequest,
    Validity,
    Workload,
)
from services.runtime.kafka import (
    assigned_consumer,
    end_offsets,
    idempotent_producer,
)
from tests.integration.runs import readers
from tests.traffic import CODEC, TRAFFIC

# 1 s of warm-up, then measure. The load "starts" 10 s before the test, so that unexpected outputs,
# whose phase is that of their own time, are in the measure phase, too.
PHASES = Phases(warm_up_s=1, measure_s=3_600, cool_down_s=3)
DEADLINE_MS, GIVE_UP_MS = 4_000, 5_000
COMMON = {"num_lanes": 1, "latitude": 52.0, "longitude": 4.0, "period_s": 60}


def request_of(run_id):
    workload = Workload(
        name="test",
        summary="Hand-written.",
        load=Constant(rate_per_second=1),
        phases=PHASES,
        judgement=Judgement(deadline_ms=DEADLINE_MS, give_up_ms=GIVE_UP_MS),
        validity=Validity(max_clock_behind_ms=60_000),  # few probe records must suffice
    )
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    return RunRequest(
        run_id=run_id,
        workload=workload,
        pipelines=(pipeline,),
        stages=TRAFFIC.stage_names,
        domain=TRAFFIC,
    )


# Site a, one lane, seconds 0 to 2; site b with second 0 only: (site, second, flow, speed). The
# first is scheduled in the warm-up, all others are measured.
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
        return CODEC.encode(f"traffic_{key[2]}", self.inputs[key])

    def parsed(self, key, **changes):
        fields = {k: v for k, v in self.inputs[key].items() if k != "scheduled_at"}
        empty = {"flow_vehicles_per_hour": None, "speed_km_per_hour": None}
        return CODEC.encode("output_parse", {**empty, **fields, **changes})

    def joined(self, site, second):
        flow, speed = self.inputs[site, second, "flow"], self.inputs[site, second, "speed"]
        names = [field["name"] for field in CODEC.schema("output_join").parsed["fields"]]
        both = flow | speed
        return CODEC.encode("output_join", {name: both[name] for name in names})

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
        return CODEC.encode(name, head | times | values)

    def explained_outputs(self):
        """Topic, value and inputs of every first output that its inputs explain, except one."""
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


def ends(settings, *topics):
    consumer = assigned_consumer(settings, "tests-ends")
    try:
        return {topic: end_offsets(consumer, topic) for topic in topics}
    finally:
        consumer.close()


def write(settings, records):
    """Write (topic, value) pairs, keyed by measurement id. On return all have their
    LogAppendTime."""
    producer = idempotent_producer(settings, "tests-writer")
    for topic, value in records:
        producer.produce(topic, value, _key_of(value))
    assert producer.flush(10) == 0


def _key_of(value):
    try:
        return CODEC.decode(value)[1].get("measurement_id", "a").encode()
    except DecodeError:
        return b"a"


def append_times(settings, topics):
    """LogAppendTime of the first record with a value in a topic, read from the topics."""
    times = {}
    counts = {topic: sum(end) for topic, end in ends(settings, *topics).items()}
    with readers(settings, *topics) as found:
        for topic, reader in zip(topics, found, strict=True):
            deadline = time.monotonic() + 90
            while len(reader.messages) < counts[topic]:
                assert time.monotonic() < deadline
                reader.read()
            for message in reader.messages:
                times.setdefault((topic, message.value()), message.timestamp()[1])
    return times


def expected_latencies(run, outputs, times):
    totals = Counter()
    for topic, value, keys in outputs:
        out_ms = times[topic, value]
        in_ms = [times[f"traffic.{key[2]}", run.encoded(key)] for key in keys]
        scheduled_ms = max(run.inputs[key]["scheduled_at"] for key in keys) // 1_000
        phase = "measure" if scheduled_ms >= run.start_ms + 1_000 else "warm_up"
        stage, second = topic.rpartition(".")[2], out_ms // 1_000 * 1_000
        # Halves round up: the mean of n integers in integer arithmetic.
        mean = (2 * (len(in_ms) * out_ms - sum(in_ms)) + len(in_ms)) // (2 * len(in_ms))
        totals[stage, "latest", phase, second, out_ms - max(in_ms)] += 1
        totals[stage, "mean", phase, second, mean] += 1
        totals[stage, "event_time", phase, second, out_ms - scheduled_ms] += 1
    return totals
