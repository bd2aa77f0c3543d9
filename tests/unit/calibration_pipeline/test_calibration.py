"""What a calibration pipeline makes of inputs, and which outputs it spoils."""

from collections import Counter

import pytest
from pydantic import ValidationError

from schemas import codec
from schemas.json_format import decode_json, encode_json
from schemas.pipeline import Calibration, Pipeline
from services.calibration_pipeline.faults import fault_of, window_number
from services.calibration_pipeline.stages import Stages
from services.runtime.definitions import load_pipeline

pytestmark = pytest.mark.unit

STAGES = ("ingest", "parse", "tumbling")


def an_input(kind, lane, sequence, value, lanes=2, observed_ms=7_300):
    names = {"flow": "flow_vehicles_per_hour", "speed": "speed_km_per_hour"}
    fields = {
        "run_id": "r",
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
    return codec.encode(f"traffic_{kind}", fields)


def test_an_input_is_copied_and_decoded():
    value = an_input("flow", "lane1", 5, 60)
    raw, parsed = Stages(("ingest", "parse")).outputs("traffic.flow", value, 1_000)
    assert (raw.stage, raw.number, raw.latest_ms, raw.value) == ("ingest", 5, 1_000, value)
    name, fields = codec.decode(parsed.value)
    assert (name, fields["sequence"], fields["flow_vehicles_per_hour"]) == ("output_parse", 5, 60)
    assert fields["speed_km_per_hour"] is None


def test_a_window_is_summed_when_every_lane_of_both_kinds_is_there():
    stages = Stages(("tumbling",))
    lanes = [("flow", "lane1", 60), ("speed", "lane1", 50.0), ("flow", "lane2", 90)]
    for number, (kind, lane, value) in enumerate(lanes):
        assert (
            stages.outputs(f"traffic.{kind}", an_input(kind, lane, number, value), 1_000 + number)
            == []
        )
    (made,) = stages.outputs("traffic.speed", an_input("speed", "lane2", 3, 70.0), 999)
    assert made.latest_ms == 1_002
    assert codec.decode(made.value)[1] == {
        "run_id": "r",
        "measurement_id": "a",
        "window_start": 7_000,
        "window_end": 8_000,
        "lanes": 2,
        "accumulated_flow_vehicles_per_hour": 150,
        "average_speed_km_per_hour": 60.0,
    }
    assert codec.decode(made.spoilt)[1]["accumulated_flow_vehicles_per_hour"] == 151


def test_a_long_window_is_summed_when_every_lane_was_there_in_every_second():
    stages = Stages(("tumbling",), window_s=2)
    for second, (flow, speed) in enumerate([(10, 50.0), (30, 70.0)]):
        at_ms = 8_000 + 1_000 * second
        first = an_input("flow", "lane1", 0, flow, lanes=1, observed_ms=at_ms)
        assert stages.outputs("traffic.flow", first, 1) == []
        last = an_input("speed", "lane1", 1, speed, lanes=1, observed_ms=at_ms)
        found = stages.outputs("traffic.speed", last, 2)
    (made,) = found
    fields = codec.decode(made.value)[1]
    assert (fields["window_start"], fields["window_end"], fields["lanes"]) == (8_000, 10_000, 1)
    assert fields["accumulated_flow_vehicles_per_hour"] == 40
    assert fields["average_speed_km_per_hour"] == 60.0


def test_json_is_copied_and_decoded_as_avro_is():
    fields = codec.decode(an_input("flow", "lane1", 5, 60))[1]
    value = encode_json("traffic_flow", fields)
    raw, parsed = Stages(("ingest", "parse"), "json").outputs("traffic.flow", value, 1_000)
    assert raw.value == value
    assert decode_json("traffic_flow", raw.spoilt) == fields | {"accuracy_percent": -1}
    assert codec.decode(parsed.value)[1]["flow_vehicles_per_hour"] == 60


def test_what_does_not_decode_is_only_copied():
    (made,) = Stages(STAGES).outputs("traffic.flow", b"no record", 5)
    assert (made.stage, made.number, made.value) == ("ingest", -1, b"no record")
    assert Stages(("parse",)).outputs("traffic.flow", None, 5) == []


def test_a_record_of_another_topic_is_only_copied():
    value = an_input("speed", "lane1", 5, 60.0)
    (made,) = Stages(STAGES).outputs("traffic.flow", value, 5)
    assert (made.stage, made.number, made.value) == ("ingest", -1, value)


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
    every = Calibration(
        drop_one_in=1_000, duplicate_one_in=1_000, late_one_in=1_000, corrupt_one_in=1_000
    )
    assert fault_of(number, every) == fault
    assert fault_of(number, Calibration()) == "none"


def test_one_in_so_many_is_hit_exactly():
    twenty = Calibration(drop_one_in=20, corrupt_one_in=20)
    assert Counter(fault_of(number, twenty) for number in range(400)) == {
        "drop": 20,
        "corrupt": 20,
        "none": 360,
    }


def test_a_window_has_the_number_of_its_address():
    assert window_number("a", 7_000) == window_number("a", 7_000) != window_number("a", 8_000)


def test_the_calibration_that_comes_with_the_project_waits_50_ms_and_spoils_nothing():
    assert load_pipeline("calibration").calibration == Calibration(delay_ms=50)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "calibration"},
        {"mode": "real-time", "calibration": {"delay_ms": 1}},
        {"mode": "calibration", "calibration": {"delay_ms": 1}, "stages": ["join"]},
        {"mode": "calibration", "calibration": {"delay_ms": -1}, "stages": ["parse"]},
    ],
    ids=["no table", "table but Spark", "a stage it has not", "negative delay"],
)
def test_a_calibration_that_makes_no_sense_is_refused(fields):
    with pytest.raises(ValidationError):
        Pipeline.model_validate({"name": "c", "summary": "-", **fields})
