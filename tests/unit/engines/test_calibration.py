"""Outputs of a calibration pipeline, and which of them it corrupts."""

import time
from collections import Counter

import pytest
from faults import (
    Output,
    Outputs,
    address_number,
    falling_ms,
    fault_of,
    service_ms,
    slowness_ms,
)
from stages.plan import FaultyRecordError

from schemas.codec import decode_json, encode_json
from schemas.protocol import probe_run_id
from services.definitions.pipelines import load_pipeline
from tests.traffic import CODEC, TRAFFIC
from tests.unit.engines.rows import plan_of

pytestmark = pytest.mark.unit

STAGES = ("ingest", "parse", "tumbling")
KEY = b"a"
ONE_IN = ("drop_one_in", "duplicate_one_in", "late_one_in", "corrupt_one_in")


@pytest.fixture
def of_traffic(tmp_path):
    def new(*stages, domain=TRAFFIC, wire_format="avro"):
        return Outputs(plan_of(domain, tmp_path, *stages, wire_format=wire_format))

    return new


def outputs(calibration, topic, value, appended_ms) -> list[Output]:
    return calibration.read(topic, KEY, value, appended_ms, (0, 0))


def an_input(kind, lane, sequence, value, lanes=2, observed_ms=7_300, run_id="r"):
    names = {"flow": "flow_vehicles_per_hour", "speed": "speed_km_per_hour"}
    fields = {
        "run_id": run_id,
        "measurement_id": "a",
        "lane": lane,
        "num_lanes": lanes,
        "latitude": 52.0,
        "longitude": 4.0,
        "observed_at": observed_ms,
        "period_s": 60,
        "accuracy_percent": 90,
        "sequence": sequence,
        "scheduled_at": 0,
        names[kind]: value,
    }
    return CODEC.encode(f"traffic_{kind}", fields)


def test_an_input_is_copied_and_decoded(of_traffic):
    value = an_input("flow", "lane1", 5, 60)
    stages = of_traffic("ingest", "parse")
    raw, parsed = outputs(stages, "traffic.flow", value, 1_000)
    assert (raw.stage["name"], raw.number, raw.due_ms, raw.key, raw.value) == (
        *("ingest", 5, 1_000, KEY, value),
    )
    name, fields = CODEC.decode(parsed.value)
    assert (name, fields["sequence"], fields["flow_vehicles_per_hour"]) == ("output_parse", 5, 60)
    assert fields["speed_km_per_hour"] is None


def test_a_window_is_summed_when_every_lane_of_both_kinds_is_there(of_traffic):
    stages = of_traffic("tumbling")
    lanes = [("flow", "lane1", 60), ("speed", "lane1", 50.0), ("flow", "lane2", 90)]
    for number, (kind, lane, value) in enumerate(lanes):
        for _ in range(2):  # a repeated record counts once
            given = an_input(kind, lane, number, value)
            assert outputs(stages, f"traffic.{kind}", given, 1_000 + number) == []
    last = an_input("speed", "lane2", 3, 70.0)
    (made,) = outputs(stages, "traffic.speed", last, 999)
    assert (made.due_ms, made.key, made.number) == (1_002, b"a", address_number("a", 7_000))
    assert outputs(stages, "traffic.speed", last, 1_100) == []
    assert CODEC.decode(made.value)[1] == {
        "run_id": "r",
        "measurement_id": "a",
        "window_start": 7_000,
        "window_end": 8_000,
        "lanes": 2,
        "accumulated_flow_vehicles_per_hour": 150,
        "average_speed_km_per_hour": 60.0,
    }
    assert CODEC.decode(stages.corrupted(made))[1]["average_speed_km_per_hour"] == 61.0


def test_a_long_window_is_summed_when_every_lane_was_there_in_every_second(of_traffic):
    domain = TRAFFIC.resolved({"tumbling_s": 2, "sliding_s": 6})
    stages = of_traffic("tumbling", domain=domain)
    for second, (flow, speed) in enumerate([(10, 50.0), (30, 70.0)]):
        at_ms = 8_000 + 1_000 * second
        first = an_input("flow", "lane1", 0, flow, lanes=1, observed_ms=at_ms)
        assert outputs(stages, "traffic.flow", first, 1) == []
        last = an_input("speed", "lane1", 1, speed, lanes=1, observed_ms=at_ms)
        found = outputs(stages, "traffic.speed", last, 2)
    (made,) = found
    fields = CODEC.decode(made.value)[1]
    assert (fields["window_start"], fields["window_end"], fields["lanes"]) == (8_000, 10_000, 1)
    assert fields["accumulated_flow_vehicles_per_hour"] == 40
    assert fields["average_speed_km_per_hour"] == 60.0


def test_json_is_copied_and_decoded_as_avro_is(of_traffic):
    fields = CODEC.decode(an_input("flow", "lane1", 5, 60))[1]
    value = encode_json("traffic_flow", fields, CODEC)
    stages = of_traffic("ingest", "parse", wire_format="json")
    raw, parsed = outputs(stages, "traffic.flow", value, 1_000)
    assert raw.value == value
    assert decode_json("traffic_flow", stages.corrupted(raw), CODEC) == fields | {
        "flow_vehicles_per_hour": 61
    }
    assert CODEC.decode(parsed.value)[1]["flow_vehicles_per_hour"] == 60


def test_of_all_programs_one_raises_once_when_the_run_asks_for_it(tmp_path):
    file = tmp_path / "one.raise"
    plans = [
        plan_of(TRAFFIC, tmp_path, "parse", wire_format="avro", raise_file=str(file))
        for _ in range(2)
    ]
    record = an_input("flow", "lane1", 5, 100)
    plans.append(plan_of(TRAFFIC, tmp_path, "parse", wire_format="avro"))
    assert [raises(plan, record) for plan in plans] == [False] * 3
    file.touch()
    deadline_s = time.monotonic() + 60
    while not (raised := [raises(plan, record) for plan in plans]).count(True):
        assert time.monotonic() < deadline_s
    while len(raised) < 10_000:
        raised += [raises(plan, record) for plan in plans]
    assert raised.count(True) == 1


def raises(plan, value):
    """Whether a record raises."""
    try:
        plan.row_of("traffic.flow", value, 1_000)
    except FaultyRecordError:
        return True
    return False


def test_what_does_not_decode_is_only_copied(of_traffic):
    (made,) = outputs(of_traffic(*STAGES), "traffic.flow", b"no record", 5)
    assert (made.stage["name"], made.number, made.value) == ("ingest", -1, b"no record")
    assert outputs(of_traffic("parse"), "traffic.flow", None, 5) == []


def test_a_record_of_another_topic_is_only_copied(of_traffic):
    value = an_input("speed", "lane1", 5, 60.0)
    (made,) = outputs(of_traffic(*STAGES), "traffic.flow", value, 5)
    assert (made.stage["name"], made.number, made.value) == ("ingest", -1, value)


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (-1, "none"),
        (0, "drop"),
        (1, "duplicate"),
        (2, "late"),
        (3, "corrupt"),
        (4, "none"),
        (1_000, "drop"),
        (1_003, "corrupt"),
    ],
)
def test_the_number_says_what_is_spoilt(number, fault):
    every = dict.fromkeys(ONE_IN, 1_000)
    assert fault_of(number, every) == fault
    assert fault_of(number, dict.fromkeys(ONE_IN, 0)) == "none"


@pytest.mark.parametrize(
    ("due_ms", "every_s", "later_ms"),
    [
        (5_000, 5, 300),
        (5_999, 5, 300),
        (6_000, 5, 0),
        (4_999, 5, 0),
        (5_000, 0, 0),
        (7_000, 1, 300),
    ],
)
def test_one_second_in_so_many_is_slow(due_ms, every_s, later_ms):
    assert slowness_ms(due_ms, {"slow_every_s": every_s, "slow_ms": 300}) == later_ms


def test_one_in_so_many_is_hit_exactly():
    twenty = dict.fromkeys(ONE_IN, 0) | {"drop_one_in": 20, "corrupt_one_in": 20}
    assert Counter(fault_of(number, twenty) for number in range(400)) == {
        "drop": 20,
        "corrupt": 20,
        "none": 360,
    }


def test_an_output_has_the_number_of_its_address():
    assert address_number("a", 7_000) == address_number("a", 7_000) != address_number("a", 8_000)


def test_the_calibration_that_comes_with_the_project_waits_50_ms_and_spoils_nothing():
    assert load_pipeline("calibration").settings == dict.fromkeys(ONE_IN, 0) | {
        "delay_ms": 50,
        "falling_ms": 0,
        "falling_half_s": 10,
        "late_ms": 15_000,
        "outage_ms": 1_000,
        "slow_every_s": 0,
        "slow_ms": 500,
        "capacity_per_second": 0,
        "workers": 1,
        "contention": 0.0,
        "coherency": 0.0,
    }


@pytest.mark.parametrize(
    ("elapsed_ms", "left_ms"), [(-5, 80.0), (0, 80.0), (4_000, 40.0), (8_000, 20.0), (12_000, 10.0)]
)
def test_a_delay_that_falls_is_half_as_much_after_each_half_life(elapsed_ms, left_ms):
    assert falling_ms(elapsed_ms, {"falling_ms": 80, "falling_half_s": 4}) == left_ms
    assert falling_ms(elapsed_ms, {"falling_ms": 0, "falling_half_s": 4}) == 0.0


def test_a_join_has_the_first_record_of_each_input_once(of_traffic):
    stages = of_traffic("join")
    assert outputs(stages, "traffic.flow", an_input("flow", "lane1", 0, 60, 1), 10) == []
    assert outputs(stages, "traffic.flow", an_input("flow", "lane1", 1, 70, 3), 20) == []
    (made,) = outputs(stages, "traffic.speed", an_input("speed", "lane1", 2, 50.0, 2), 30)
    assert CODEC.decode(made.value) == (
        "output_join",
        {
            "run_id": "r",
            "measurement_id": "a",
            "lane": "lane1",
            "num_lanes": 2,
            "observed_at": 7_300,
            "flow_vehicles_per_hour": 60,
            "speed_km_per_hour": 50.0,
        },
    )
    assert (made.due_ms, made.key) == (30, b"a")
    assert outputs(stages, "traffic.speed", an_input("speed", "lane1", 3, 50.0, 2), 40) == []


def test_outputs_of_probes_are_never_spoilt(of_traffic):
    stages = of_traffic("ingest", "parse", "join")
    probes = {"lanes": 1, "run_id": probe_run_id("r")}
    made = outputs(stages, "traffic.flow", an_input("flow", "lane1", -1, 60, **probes), 10)
    made += outputs(stages, "traffic.speed", an_input("speed", "lane1", -2, 60.0, **probes), 10)
    assert [one.number for one in made] == [-1, -1, -2, -2, -1]


@pytest.mark.parametrize(
    ("workers", "per_second"),
    [(1, 100), (2, 200 / (1 + 0.1 + 0.02)), (8, 800 / (1 + 0.7 + 0.56))],
)
def test_the_capacity_follows_the_scalability_law(workers, per_second):
    settings = {
        "capacity_per_second": 100,
        "workers": workers,
        "contention": 0.1,
        "coherency": 0.01,
    }
    assert 1000 / service_ms(settings) == pytest.approx(per_second)
    assert service_ms({**settings, "capacity_per_second": 0}) == 0
