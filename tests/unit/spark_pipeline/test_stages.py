"""Stage logic on literal rows: the functions that the queries run, on static data."""

import json
from operator import itemgetter

import pytest

from schemas import codec
from schemas.engine import LINE
from services.spark_pipeline.outputs import (
    CUSTOMISED,
    StageSource,
    once_stateful,
    outputs,
    stateful_steps,
)
from services.spark_pipeline.settings import SparkPipeline
from services.spark_pipeline.stages.rows import Inputs
from services.spark_pipeline.wire import fitted
from tests.traffic import CODEC, TRAFFIC
from tests.unit.spark_pipeline.observations import (
    OBSERVATION,
    START_MS,
    at,
    both,
    flow,
    speed,
    within,
)

pytestmark = pytest.mark.integration

UNDECODABLE = "engine.p.r.undecodable"
RAW = "topic string, key binary, value binary, partition int, offset bigint, timestamp timestamp"


def rows_of(stage, spark, observations, **windows):
    domain = TRAFFIC.resolved(windows)
    frame = spark.createDataFrame(observations, OBSERVATION)
    steps = stateful_steps(domain, stage)
    found = once_stateful(frame, steps, Inputs.of(domain, stage), CUSTOMISED)
    whole = fitted(found, domain.stage(stage).record, domain.codec)
    return [within(row) for row in whole.collect()]


def record(kind, **fields):
    common = {
        "measurement_id": "s", "lane": "lane1", "num_lanes": 1, "latitude": 52.5,
        "longitude": 4.75, "observed_at": START_MS + 250, "period_s": 60, "accuracy_percent": 95,
        "sequence": 7, "run_id": "r", "scheduled_at": START_MS * 1000,
    }  # fmt: skip
    return common | fields, CODEC.encode(f"traffic_{kind}", common | fields)


def rows_published(spark, stage, raw, wire_format="avro", **fields):
    """Published rows of a stage for (topic, key, value), the first of them at offset 0."""
    return frame_published(spark, stage, raw, wire_format, **fields).collect()


def frame_published(spark, stage, raw, wire_format="avro", **fields):
    full = [(*each, 0, offset, at(60)) for offset, each in enumerate(raw)]
    frame = spark.createDataFrame(full, RAW)
    given = {"name": "p", "summary": "-", "engine": "spark", "mode": "micro-batch"} | fields
    pipeline = SparkPipeline.model_validate(given)
    read = lambda topics: frame.where(frame["topic"].isin(*topics))  # noqa: E731
    source = StageSource(read, UNDECODABLE, wire_format)
    return outputs(source, TRAFFIC, stage, pipeline)


def published(spark, stage, raw, **fields):
    rows = rows_published(spark, stage, raw, **fields)
    kept = [row for row in rows if "topic" not in row or row["topic"] == f"output.p.{stage}"]
    return [(bytes(row["key"]), bytes(row["value"])) for row in kept]


def test_join_gives_flow_and_speed_of_one_lane_and_time_whichever_comes_first(spark):
    rows = [speed(0, 80.5, "lane1", 2), flow(1, 60), flow(0, 120, "lane1", 2), speed(1, 90.0)]
    found = rows_of("join", spark, rows)
    expected = [
        {"run_id": "r", "measurement_id": "s", "lane": "lane1", "num_lanes": 2, "observed_at": 0,
         "flow_vehicles_per_hour": 120, "speed_km_per_hour": 80.5},
        {"run_id": "r", "measurement_id": "s", "lane": "lane1", "num_lanes": 1, "observed_at": 1,
         "flow_vehicles_per_hour": 60, "speed_km_per_hour": 90.0},
    ]  # fmt: skip
    assert sorted(found, key=lambda row: row["observed_at"]) == expected


@pytest.mark.parametrize(
    "other",
    [
        speed(0, 80.0, lane="lane2"),
        speed(0, 80.0, site="other"),
        speed(0, 80.0, run="r-probe"),
        speed(0.001, 80.0),
    ],
    ids=["another lane", "another site", "another run", "a millisecond later"],
)
def test_join_withholds_a_flow_whose_speed_is_elsewhere(spark, other):
    assert rows_of("join", spark, [flow(0, 60), other]) == []


def test_join_takes_a_flow_of_zero_as_a_flow(spark):
    found = rows_of("join", spark, both(0, 0, 80.0))
    assert [row["flow_vehicles_per_hour"] for row in found] == [0]


def test_tumbling_sums_flow_and_averages_speed_over_all_lanes(spark):
    rows = [
        *both(0, 60, 70.0, lane="lane1", num_lanes=3),
        *both(0, 120, 80.0, lane="lane2", num_lanes=3),
        *reversed(both(0.999, 0, 93.0, lane="lane3", num_lanes=3)),
    ]
    assert rows_of("tumbling", spark, rows) == [
        {"run_id": "r", "measurement_id": "s", "window_start": 0, "window_end": 1, "lanes": 3,
         "accumulated_flow_vehicles_per_hour": 180, "average_speed_km_per_hour": 81.0}
    ]  # fmt: skip


@pytest.mark.parametrize("missing", range(4))
def test_tumbling_withholds_a_window_that_lacks_a_record_of_any_lane_and_kind(spark, missing):
    rows = [
        *both(0, 60, 70.0, lane="lane1", num_lanes=2),
        *both(0, 60, 70.0, lane="lane2", num_lanes=2),
    ]
    assert rows_of("tumbling", spark, rows[:missing] + rows[missing + 1 :]) == []


def test_tumbling_keeps_runs_and_windows_apart(spark):
    rows = [*both(0, 60, 70.0), *both(1, 120, 80.0), *both(0, 180, 90.0, run="r-probe")]
    found = rows_of("tumbling", spark, rows)
    assert sorted(
        (row["run_id"], row["window_start"], row["accumulated_flow_vehicles_per_hour"])
        for row in found
    ) == [("r", 0, 60), ("r", 1, 120), ("r-probe", 0, 180)]


def test_tumbling_takes_its_window_length_as_a_parameter(spark):
    rows = [*both(2, 60, 70.0), *both(3, 90, 80.0), *both(4, 30, 10.0)]
    (found,) = rows_of("tumbling", spark, rows, tumbling_s=2, sliding_s=6)
    assert (found["window_start"], found["window_end"]) == (2, 4)
    assert found["lanes"] == 1
    assert found["accumulated_flow_vehicles_per_hour"] == 150
    assert found["average_speed_km_per_hour"] == 75.0


def test_sliding_gives_the_change_against_one_and_two_seconds_before(spark):
    rows = [*both(2, 150, 99.0), *both(0, 120, 66.0), *both(1, 100, 88.0)]
    assert rows_of("sliding", spark, rows) == [
        {"run_id": "r", "measurement_id": "s", "window_start": 0, "window_end": 3,
         "flow_change_short": 0.5, "flow_change_long": 0.25,
         "speed_change_short": 0.125, "speed_change_long": 0.5}
    ]  # fmt: skip


def test_sliding_compares_sums_and_averages_over_all_lanes(spark):
    lanes = [{"lane": "lane1", "num_lanes": 2}, {"lane": "lane2", "num_lanes": 2}]
    rows = [
        *both(0, 10, 40.0, **lanes[0]), *both(0, 30, 60.0, **lanes[1]),
        *both(1, 20, 50.0, **lanes[0]), *both(1, 60, 30.0, **lanes[1]),
        *both(2, 40, 80.0, **lanes[0]), *both(2, 80, 20.0, **lanes[1]),
    ]  # fmt: skip
    (found,) = rows_of("sliding", spark, rows)
    # Sums 40, 80, 120; averages 50, 40, 50.
    assert (found["flow_change_short"], found["flow_change_long"]) == (0.5, 2.0)
    assert (found["speed_change_short"], found["speed_change_long"]) == (0.25, 0.0)


def test_sliding_publishes_one_window_per_second_once_three_are_there(spark):
    rows = [row for second in range(5) for row in both(second, 100 + second, 50.0)]
    found = rows_of("sliding", spark, rows)
    bounds = sorted((row["window_start"], row["window_end"]) for row in found)
    assert bounds == [(0, 3), (1, 4), (2, 5)]


def test_sliding_has_no_change_against_a_flow_or_speed_of_zero(spark):
    rows = [*both(0, 0, 50.0), *both(1, 100, 0.0), *both(2, 50, 40.0)]
    (found,) = rows_of("sliding", spark, rows)
    assert found["flow_change_short"] == -0.5
    assert found["flow_change_long"] is None
    assert found["speed_change_short"] is None
    assert found["speed_change_long"] == -0.2


def test_sliding_withholds_a_window_in_which_one_second_lacks_a_lane(spark):
    # As many records as in a complete window, but the second lane occurred twice at second 0.
    lane2 = {"lane": "lane2", "num_lanes": 2}
    rows = [row for second in range(3) for row in both(second, 60, 70.0, num_lanes=2)]
    rows += [
        *both(0, 60, 70.0, **lane2),
        *both(0.5, 60, 70.0, **lane2),
        *both(2, 60, 70.0, **lane2),
    ]
    assert rows_of("sliding", spark, rows) == []


def test_sliding_counts_the_lanes_of_each_second(spark):
    rows = [*both(0, 120, 66.0), *both(1, 100, 88.0)]
    for lane in ("lane1", "lane2"):
        rows += both(2, 75, 99.0, lane=lane, num_lanes=2)
    (found,) = rows_of("sliding", spark, rows)
    assert (found["flow_change_short"], found["flow_change_long"]) == (0.5, 0.25)


def test_sliding_takes_longer_windows_and_refuses_those_that_do_not_fit(spark):
    # Flows of the parts: 10 + 30, 20 + 40, 50 + 70.
    flows = (10, 30, 20, 40, 50, 70)
    rows = [row for second, flow in enumerate(flows) for row in both(second, flow, 50.0)]
    (found,) = rows_of("sliding", spark, rows, tumbling_s=2, sliding_s=6)
    assert (found["window_start"], found["window_end"]) == (0, 6)
    assert (found["flow_change_short"], found["flow_change_long"]) == (1.0, 2.0)
    assert rows_of("sliding", spark, rows[:4] + rows[6:], tumbling_s=2, sliding_s=6) == []
    with pytest.raises(ValueError, match="times slide_s"):
        rows_of("sliding", spark, [], tumbling_s=2, sliding_s=5)


def test_ingest_publishes_bytes_as_they_came_whatever_they_are(spark):
    raw = [("traffic.flow", b"k", b"anything"), ("traffic.speed", b"", b"")]
    assert sorted(published(spark, "ingest", raw)) == [(b"", b""), (b"k", b"anything")]


@pytest.mark.parametrize(
    ("kind", "measure"), [("flow", "flow_vehicles_per_hour"), ("speed", "speed_km_per_hour")]
)
def test_parse_publishes_every_field_of_an_observation(spark, kind, measure):
    fields, value = record(kind, **{measure: 120})
    ((key, found),) = published(spark, "parse", [(f"traffic.{kind}", b"ignored", value)])
    expected = fields | {"flow_vehicles_per_hour": None, "speed_km_per_hour": None, measure: 120}
    del expected["scheduled_at"]
    assert key == b"s"
    assert CODEC.decode(found) == ("output_parse", expected)


def test_a_value_that_is_no_record_of_its_topic_is_passed_over(spark):
    _, good = record("flow", flow_vehicles_per_hour=60)
    _, other = record("speed", speed_km_per_hour=60.0)
    claims_a_gigabyte = good[:10] + b"\x80\x80\x80\x80\x08" + b"x"
    bad = [None, b"", b"\xc3\x01", b"text", good[:10], good[:-3], other, claims_a_gigabyte]
    raw = [("traffic.flow", b"k", value) for value in [*bad, good]]
    assert [CODEC.decode(value)[1]["sequence"] for _, value in published(spark, "parse", raw)] == [
        7
    ]


@pytest.mark.parametrize("stage", ["parse", "join", "tumbling", "sliding"])
@pytest.mark.parametrize("implementation", ["customised", "built-in"])
def test_a_json_value_is_parsed_once(spark, stage, implementation):
    """Spark evaluates an expression as often as the plan repeats it."""
    raw = [(TRAFFIC.topics[0], b"s", b"{}")]
    frame = frame_published(spark, stage, raw, "json", implementation=implementation)
    spark.conf.set("spark.sql.maxPlanStringLength", 10_000_000)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    spark.conf.unset("spark.sql.maxPlanStringLength")
    assert plan.count("from_json(") == len(TRAFFIC.inputs)


def test_parse_takes_json_too_and_refuses_what_lacks_a_field(spark):
    fields, _ = record("flow", flow_vehicles_per_hour=120)
    value = codec.encode_json("traffic_flow", fields, CODEC)
    lacking = json.dumps({**fields, "lane": None}).encode()
    bad = [None, b"", b"{}", b"[1]", b"\xff", value[: len(value) // 2], value[:-1], lacking,
           value.replace(b'"num_lanes":1', b'"num_lanes":"x"')]  # fmt: skip
    raw = [("traffic.flow", b"s", each) for each in [value, *bad]]
    rows = rows_published(spark, "parse", raw, wire_format="json")
    (good,) = (row for row in rows if row["topic"] == "output.p.parse")
    expected = {**fields, "speed_km_per_hour": None}
    del expected["scheduled_at"]
    assert CODEC.decode(bytes(good["value"])) == ("output_parse", expected)
    lines = [LINE.validate_json(bytes(row["value"])) for row in rows if row is not good]
    assert sorted(line.offset for line in lines) == list(range(1, 1 + len(bad)))


def test_a_value_that_is_no_record_is_reported_with_its_place(spark):
    _, good = record("flow", flow_vehicles_per_hour=60)
    raw = [
        ("traffic.flow", b"s", good),
        ("traffic.flow", b"k", good[:-3]),
        ("traffic.speed", None, None),
        ("traffic.flow", b"k", b"x" * 100_001),
    ]
    rows = rows_published(spark, "parse", raw)
    assert sorted(row["topic"] for row in rows) == [UNDECODABLE] * 3 + ["output.p.parse"]
    lines = [LINE.validate_json(bytes(row["value"])) for row in rows if row["topic"] == UNDECODABLE]
    found = [(line.topic, line.partition, line.offset, line.value, line.bytes) for line in lines]
    assert sorted(found, key=itemgetter(2)) == [
        ("traffic.flow", 0, 1, good[:-3], len(good) - 3),
        ("traffic.speed", 0, 2, None, 0),
        ("traffic.flow", 0, 3, b"x" * 100_000, 100_001),
    ]


def test_windows_are_published_in_milliseconds_of_event_time(spark):
    raw = [
        ("traffic.flow", b"s", record("flow", flow_vehicles_per_hour=60)[1]),
        ("traffic.speed", b"s", record("speed", speed_km_per_hour=80.0)[1]),
    ]
    ((key, value),) = published(spark, "tumbling", raw)
    assert key == b"s"
    assert CODEC.decode(value) == (
        "output_tumbling",
        {
            "run_id": "r", "measurement_id": "s", "window_start": START_MS,
            "window_end": START_MS + 1000, "lanes": 1,
            "accumulated_flow_vehicles_per_hour": 60, "average_speed_km_per_hour": 80.0,
        },
    )  # fmt: skip
