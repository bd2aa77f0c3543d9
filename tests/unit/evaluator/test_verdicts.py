"""Every verdict of every stage, on rows worked out by hand.

Times are milliseconds after START_MS. By default the inputs are those of outputs.py, so a join is
due with latest 2300 and mean 2200. Late after 1000 ms, missing after 2000 ms.
"""

import json
from collections import Counter

import numpy as np
import pytest

from schemas.protocol import VERDICTS
from services.evaluator.pairing.counters import StageCounters
from services.runtime.counting import MAX_SAMPLES
from tests.unit.evaluator.outputs import (
    FLOW,
    SPEED,
    TWO_LANES,
    join,
    sliding,
    three_seconds,
    tumbling,
)
from tests.unit.evaluator.records import (
    RUN_ID,
    START_MS,
    Output,
    Reading,
    Run,
    parsed,
    slid,
    tumbled,
    verdicts_of,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]


EXACT, WRONG, MISSING = {"exact": 1}, {"wrong": 1}, {"missing": 1}


@pytest.mark.parametrize(
    ("why", "outputs", "verdicts"),
    [
        ("in time", [join(2_400)], EXACT),
        ("at the deadline", [join(3_300)], EXACT),
        ("after the deadline", [join(3_301)], {"late": 1}),
        ("another flow", [join(2_400, flow=301)], WRONG),
        ("another speed", [join(2_400, speed=80.1)], WRONG),
        ("another number of lanes", [join(2_400, num_lanes=2)], WRONG),
        ("other values after the deadline are wrong, not late", [join(9_000, flow=301)], WRONG),
        ("none", [], MISSING),
        ("twice", [join(2_400), join(2_401)], {"exact": 1, "duplicate": 1}),
        ("twice, then other values", [join(2_400), join(2_401, 5)], {"exact": 1, "duplicate": 1}),
        ("wrong, then right", [join(2_400, 5), join(2_401)], {"wrong": 1, "duplicate": 1}),
        ("three times", [join(2_400)] * 3, {"exact": 1, "duplicate": 2}),
        ("another site", [join(2_400, measurement_id="b")], {"missing": 1, "unexpected": 1}),
        ("another lane", [join(2_400, lane="x")], {"missing": 1, "unexpected": 1}),
        ("another time", [join(2_400, observed_at=0)], {"missing": 1, "unexpected": 1}),
        ("of another run", [join(2_400, run_id="other")], MISSING),
        (
            "longer before its input than the deadline",
            [join(1_299)],
            {"missing": 1, "unexpected": 1},
        ),
        ("just not", [join(1_300)], EXACT),
    ],
)
def test_a_join_is(why, outputs, verdicts):
    assert verdicts_of([FLOW, SPEED, *outputs], "join") == verdicts, why


@pytest.mark.parametrize("inputs", [[FLOW], [SPEED], [FLOW, Reading("speed", 1, 1, lane="x")]])
def test_a_join_that_lacks_a_kind_is_not_expected(inputs):
    assert verdicts_of(inputs, "join") == {}
    assert verdicts_of([*inputs, join(2_400)], "join") == {"unexpected": 1}


@pytest.mark.parametrize(
    ("why", "value", "verdicts"),
    [
        ("the bytes as they came", FLOW.encoded, EXACT),
        ("the bytes of a record that never came", SPEED.encoded, {"missing": 1, "unexpected": 1}),
        (
            "the same sequence with other content",
            Reading("flow", 0, 301, sequence=0).encoded,
            WRONG,
        ),
    ],
)
def test_an_ingest_is(why, value, verdicts):
    output = Output("ingest", START_MS + 2_101, None, value)
    assert verdicts_of([FLOW, output], "ingest") == verdicts, why


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("measurement_id", "b"),
        ("lane", "lane2"),
        ("num_lanes", 2),
        ("latitude", 52.5000001),
        ("longitude", 4.0),
        ("observed_at", START_MS + 1),
        ("period_s", 1),
        ("accuracy_percent", 94),
        ("flow_vehicles_per_hour", 301),
        ("flow_vehicles_per_hour", None),
        ("speed_km_per_hour", 80.0),
    ],
)
def test_a_parse_is_wrong_when_any_field_is(field, value):
    output = Output("parse", START_MS + 2_101, parsed(FLOW) | {field: value})
    assert verdicts_of([FLOW, output], "parse") == WRONG


def test_a_speed_published_as_a_flow_is_wrong():
    reading = Reading("speed", START_MS + 2_100, 80.0, sequence=0)
    fields = parsed(reading) | {"flow_vehicles_per_hour": 80, "speed_km_per_hour": None}
    assert verdicts_of([reading, Output("parse", START_MS + 2_101, fields)], "parse") == WRONG


@pytest.mark.parametrize("stage", ["ingest", "parse"])
@pytest.mark.parametrize("sequence", [-1, -(2**40), 7, 2**40])
def test_an_output_with_a_sequence_that_never_came_is_unexpected(stage, sequence):
    stranger = Reading("flow", 0, 300, sequence=sequence)
    fields = parsed(stranger) if stage == "parse" else None
    output = Output(stage, START_MS + 2_101, fields, stranger.encoded)
    assert verdicts_of([FLOW, output], stage) == {"missing": 1, "unexpected": 1}


@pytest.mark.parametrize(
    ("why", "fields", "verdicts"),
    [
        ("as the inputs imply", tumbled(2, 350, 75.5), EXACT),
        ("the mean within the tolerance", tumbled(2, 350, 75.5 * (1 + 9e-10)), EXACT),
        ("the mean outside the tolerance", tumbled(2, 350, 75.5 * (1 + 2e-9)), WRONG),
        ("another sum", tumbled(2, 351, 75.5), WRONG),
        ("another number of lanes", tumbled(1, 350, 75.5), WRONG),
        ("another length", tumbled(2, 350, 75.5, window_end=START_MS + 2_000), WRONG),
    ],
)
def test_a_tumbling_window_is(why, fields, verdicts):
    assert verdicts_of([*TWO_LANES, tumbling(2_200, fields)], "tumbling") == verdicts, why


@pytest.mark.parametrize("lost", range(4))
def test_a_window_that_lacks_any_record_is_not_expected(lost):
    inputs = [reading for place, reading in enumerate(TWO_LANES) if place != lost]
    assert verdicts_of(inputs, "tumbling") == {}
    output = tumbling(2_200, tumbled(2, 350, 75.5))
    assert verdicts_of([*inputs, output], "tumbling") == {"unexpected": 1}


@pytest.mark.parametrize(
    ("why", "flows", "changes", "verdicts"),
    [
        ("numbers", (100, 200, 300), (0.5, 2.0), EXACT),
        ("another short change", (100, 200, 300), (0.6, 2.0), WRONG),
        ("another long change", (100, 200, 300), (0.5, 2.1), WRONG),
        ("null for a number", (100, 200, 300), (None, 2.0), WRONG),
        ("null where 1 s before was 0", (100, 0, 300), (None, 2.0), EXACT),
        ("a number where 1 s before was 0", (100, 0, 300), (0.0, 2.0), WRONG),
        ("null where 2 s before was 0", (0, 200, 300), (0.5, None), EXACT),
        ("both null", (0, 0, 300), (None, None), EXACT),
        ("0 of 0 is null, too", (0, 0, 0), (None, None), EXACT),
        ("from something to nothing", (100, 200, 0), (-1.0, -1.0), EXACT),
    ],
)
def test_a_change_of_flow_is(why, flows, changes, verdicts):
    records = three_seconds(flows, (80.0, 50.0, 60.0))
    output = sliding(4_110, slid(changes, (0.2, -0.25)))
    assert verdicts_of([*records, output], "sliding") == verdicts, why


@pytest.mark.parametrize("second", range(3))
def test_a_sliding_window_that_lacks_a_second_is_not_expected(second):
    records = list(three_seconds((100, 200, 300), (80.0, 50.0, 60.0)))
    del records[2 * second + 1]
    assert verdicts_of(records, "sliding") == {}


def test_a_sliding_window_of_another_length_is_wrong():
    records = three_seconds((100, 200, 300), (80.0, 50.0, 60.0))
    fields = slid((0.5, 2.0), (0.2, -0.25), window_end=START_MS + 1_000)
    assert verdicts_of([*records, sliding(4_110, fields)], "sliding") == WRONG


def test_a_wrong_output_is_sampled_with_expected_and_actual_values():
    run = Run("join")
    run.add(FLOW, SPEED, join(2_400, flow=301))
    run.read_all()
    run.totals()
    assert [json.loads(sample) for sample in run.samples] == [
        {
            "verdict": "wrong",
            "measurement_id": "a",
            "lane": "lane1",
            "observed_at": START_MS,
            "actual": {
                "num_lanes": 1,
                "flow_vehicles_per_hour": 301,
                "speed_km_per_hour": 80.0,
            },
            "expected": {
                "num_lanes": 1,
                "flow_vehicles_per_hour": 300,
                "speed_km_per_hour": 80.0,
            },
        }
    ]


def test_records_and_bytes_of_the_run_are_counted_per_topic_and_second():
    run = Run("join")
    other = Reading("flow", START_MS + 2_200, 1, run_id="other")
    later = Reading("flow", START_MS + 3_000, 1, sequence=2)
    run.add(FLOW, other, later, SPEED)
    events = [e for topic, e in run.evaluation.take_events() if topic == "results.throughput"]
    size = len(FLOW.encoded)
    rows = Counter((e["topic"], e["second"] - START_MS, e["records"], e["bytes"]) for e in events)
    assert rows == {
        ("traffic.flow", 2_000, 1, size): 1,
        ("traffic.flow", 3_000, 1, size - 1): 1,  # 1 is encoded in one byte less than 300
        ("traffic.speed", 2_000, 1, len(SPEED.encoded)): 1,
    }
    assert run.evaluation.run_id == RUN_ID


def test_long_samples_are_cut_so_that_an_event_can_be_sent():
    tally = StageCounters()
    for verdict in VERDICTS:
        for _ in range(MAX_SAMPLES + 1):
            tally.add_sample(0, START_MS, {"verdict": verdict, "actual": {"text": "é" * 200_000}})
    tally.add_verdicts("wrong", np.array([0]), np.array([START_MS]))
    (event,) = tally.take_verdict_events()
    assert len(event["samples"]) == MAX_SAMPLES * len(VERDICTS)
    assert sum(map(len, event["samples"])) < 500_000
    assert {json.loads(one)["verdict"] for one in event["samples"]} == set(VERDICTS)
