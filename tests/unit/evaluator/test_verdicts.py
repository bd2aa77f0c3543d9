"""Every verdict and latency of every stage, on rows worked out by hand.

Times are milliseconds after START_MS. Unless told otherwise the inputs are a flow appended at 2100
and a speed appended at 2300, both scheduled at 2000 (the begin of the measure phase), so a join
is due with latest 2300 and mean 2200. Late after 1000 ms, missing after 2000 ms.
"""

import json
import math
from collections import Counter

import pytest

from schemas import codec
from tests.unit.evaluator.records import (
    FAR_MS,
    MEASURE_END_MS,
    MEASURE_MS,
    RUN_ID,
    START_MS,
    Output,
    Reading,
    Run,
    joined,
    parsed,
    slid,
    tumbled,
    verdicts_of,
)

pytestmark = pytest.mark.unit

FLOW = Reading("flow", START_MS + 2_100, 300, sequence=0)
SPEED = Reading("speed", START_MS + 2_300, 80.0, sequence=1)


def raw(reading, after_ms):
    return Output("ingest", START_MS + after_ms, None, reading.encoded)


def join(after_ms, flow=300, speed=80.0, **changes):
    return Output("join", START_MS + after_ms, joined(flow, speed, **changes))


def tumbling(after_ms, fields):
    return Output("tumbling", START_MS + after_ms, fields)


def sliding(after_ms, fields):
    return Output("sliding", START_MS + after_ms, fields)


def totals_of(*records):
    run = Run()
    run.add(*records)
    return run.totals()


# Latencies.


def test_ingest_is_measured_from_its_one_input():
    found = totals_of(FLOW, raw(FLOW, 2_104))
    assert found.latencies == {
        ("ingest", "latest", "measure", 4): 1,
        ("ingest", "mean", "measure", 4): 1,
        ("ingest", "event_time", "measure", 104): 1,
    }
    assert found.latency_seconds == {("ingest", 2, 4): 1}
    assert found.verdicts == {("ingest", "measure", "exact"): 1}
    assert found.verdict_seconds == {("ingest", 2, "exact"): 1}


def test_parse_is_measured_from_its_one_input():
    found = totals_of(SPEED, Output("parse", START_MS + 2_305, parsed(SPEED)))
    assert found.latencies == {
        ("parse", "latest", "measure", 5): 1,
        ("parse", "mean", "measure", 5): 1,
        ("parse", "event_time", "measure", 305): 1,
    }
    assert found.verdicts == {("parse", "measure", "exact"): 1}


def test_join_is_measured_from_the_latest_and_from_the_mean_of_flow_and_speed():
    found = totals_of(FLOW, SPEED, join(3_000))
    assert found.latencies == {
        ("join", "latest", "measure", 700): 1,
        ("join", "mean", "measure", 800): 1,
        ("join", "event_time", "measure", 1_000): 1,
    }
    assert found.latency_seconds == {("join", 3, 700): 1}
    assert found.verdicts == {("join", "measure", "exact"): 1}


def test_half_a_millisecond_of_the_mean_rounds_up():
    # The mean of 2100 and 2301 is 2200.5; 2400 - 2200.5 = 199.5.
    late_by_one = Reading("speed", START_MS + 2_301, 80.0, sequence=1)
    found = totals_of(FLOW, late_by_one, join(2_400))
    assert found.latencies["join", "mean", "measure", 200] == 1


TWO_LANES = (
    Reading("flow", START_MS + 2_000, 100, 0, lane="lane1", lanes=2),
    Reading("flow", START_MS + 2_010, 250, 2, lane="lane2", lanes=2),
    Reading("speed", START_MS + 2_100, 60.0, 1, lane="lane1", lanes=2),
    Reading("speed", START_MS + 2_130, 91.0, 3, lane="lane2", lanes=2),
)


def test_tumbling_is_the_sum_of_flow_and_the_mean_of_speed_over_all_lanes():
    # Mean of 2000, 2010, 2100 and 2130 is 2060.
    found = totals_of(*TWO_LANES, tumbling(2_150, tumbled(2, 350, 75.5)))
    assert found.latencies == {
        ("tumbling", "latest", "measure", 20): 1,
        ("tumbling", "mean", "measure", 90): 1,
        ("tumbling", "event_time", "measure", 150): 1,
    }
    assert found.verdicts == {("tumbling", "measure", "exact"): 1}


def three_seconds(flows, speeds):
    """Seconds 0 to 2 of site a; second n is appended at 2000 + 1000 n (flow) and 100 ms later."""
    for second, (flow, speed) in enumerate(zip(flows, speeds, strict=True)):
        observed_ms, appended_ms = START_MS + 1_000 * second, START_MS + 2_000 + 1_000 * second
        due_us = (MEASURE_MS + 100 * second) * 1_000
        yield Reading("flow", appended_ms, flow, 2 * second, observed_ms, due_us)
        yield Reading("speed", appended_ms + 100, speed, 2 * second + 1, observed_ms, due_us)


def test_sliding_is_measured_from_all_inputs_of_its_three_seconds():
    # Flow 100, 200, 300: short (300-200)/200, long (300-100)/100. Speed 80, 50, 60: 10/50, -20/80.
    # Inputs at 2000 2100 3000 3100 4000 4100: latest 4100, mean 3050; latest scheduled 2200.
    records = three_seconds((100, 200, 300), (80.0, 50.0, 60.0))
    found = totals_of(*records, sliding(4_110, slid((0.5, 2.0), (0.2, -0.25))))
    assert found.latencies == {
        ("sliding", "latest", "measure", 10): 1,
        ("sliding", "mean", "measure", 1_060): 1,
        ("sliding", "event_time", "measure", 1_910): 1,
    }
    assert found.verdicts == {("sliding", "measure", "exact"): 1}


def test_an_output_before_its_latest_input_has_a_negative_latency():
    # Read after its inputs, appended 40 ms before the speed.
    found = totals_of(FLOW, SPEED, join(2_260))
    assert found.latencies == {
        ("join", "latest", "measure", -40): 1,
        ("join", "mean", "measure", 60): 1,
        ("join", "event_time", "measure", 260): 1,
    }
    assert found.verdicts == {("join", "measure", "exact"): 1}


def test_scheduled_microseconds_count_as_whole_milliseconds():
    reading = Reading("flow", START_MS + 2_100, 1, scheduled_us=MEASURE_MS * 1_000 + 1_999)
    found = totals_of(reading, raw(reading, 2_101))
    assert found.latencies["ingest", "event_time", "measure", 100] == 1


# Verdicts.

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


# Phases and seconds.


@pytest.mark.parametrize(
    ("scheduled_us", "phase"),
    [
        (MEASURE_MS * 1_000 - 1, "warm_up"),
        (MEASURE_MS * 1_000, "measure"),
        (MEASURE_END_MS * 1_000 - 1, "measure"),
        (MEASURE_END_MS * 1_000, "cool_down"),
    ],
)
def test_an_output_has_the_phase_of_its_latest_scheduled_input(scheduled_us, phase):
    flow = Reading("flow", START_MS + 2_100, 300, 0, scheduled_us=scheduled_us)
    speed = Reading("speed", START_MS + 2_300, 80.0, 1, scheduled_us=scheduled_us - 10_000_000)
    found = totals_of(flow, speed, join(2_400), join(2_401, 1))
    assert found.verdicts == {("join", phase, "exact"): 1, ("join", phase, "duplicate"): 1}
    assert {where[2] for where in found.latencies} == {phase}


@pytest.mark.parametrize(
    ("after_ms", "phase"), [(1_999, "warm_up"), (2_000, "measure"), (5_000, "cool_down")]
)
def test_an_output_that_no_input_explains_has_the_phase_of_its_own_time(after_ms, phase):
    run = Run("join")
    run.add(join(after_ms))
    run.advance(FAR_MS)
    assert run.totals().verdicts == {("join", phase, "unexpected"): 1}


def test_a_missing_output_counts_in_the_second_of_its_latest_input():
    run = Run("join")
    run.add(FLOW, Reading("speed", START_MS + 3_999, 80.0, 1))
    run.advance(FAR_MS)
    assert run.totals().verdict_seconds == {("join", 3, "missing"): 1}


# Time.


def test_an_output_is_missing_only_after_it_was_given_up():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + 4_300)
    assert run.totals().verdicts == {}
    assert run.evaluation.open_in_measure() == 1
    run.advance(START_MS + 4_301)
    assert run.totals().verdicts == {("join", "measure", "missing"): 1}
    assert run.evaluation.open_in_measure() == 0


@pytest.mark.parametrize("frontiers", [(4_300, FAR_MS), (FAR_MS, 4_300)])
def test_an_output_is_not_missing_while_either_side_is_unread(frontiers):
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + frontiers[0], START_MS + frontiers[1])
    assert run.totals().verdicts == {}


def test_a_missing_output_that_comes_after_all_is_late_and_no_longer_missing():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.advance(START_MS + 6_000)
    assert run.totals().verdicts == {("join", "measure", "missing"): 1}
    run.add(join(6_500))
    found = run.totals()
    assert found.verdicts == {("join", "measure", "late"): 1}
    assert found.verdict_seconds == {("join", 6, "late"): 1}
    assert found.latencies["join", "latest", "measure", 4_200] == 1


def test_an_output_read_before_its_inputs_waits_for_them():
    run = Run("join")
    run.add(join(2_400))
    run.advance(START_MS + 3_400)
    assert run.totals().verdicts == {}
    assert run.evaluation.open_in_measure() == 1
    run.add(FLOW, SPEED)
    assert run.totals().verdicts == {("join", "measure", "exact"): 1}


def test_an_output_is_unexpected_once_the_inputs_are_read_past_its_deadline():
    run = Run("join")
    run.add(join(2_400))
    run.advance(START_MS + 3_400)
    assert run.totals().verdicts == {}
    run.advance(START_MS + 3_401)
    assert run.totals().verdicts == {("join", "measure", "unexpected"): 1}
    assert run.evaluation.open_in_measure() == 0


def test_warm_up_and_cool_down_do_not_keep_a_run_open():
    before = MEASURE_MS * 1_000 - 1
    run = Run("join")
    run.add(
        Reading("flow", START_MS + 1_000, 1, 0, scheduled_us=before),
        Reading("speed", START_MS + 1_000, 1, 1, scheduled_us=before),
    )
    assert run.evaluation.open_in_measure() == 0


# What comes again, and what is no record.


def test_the_same_output_in_a_batch_of_its_own_is_a_duplicate():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.add(join(2_400))
    run.add(join(2_500))
    assert run.totals().verdicts == {
        ("join", "measure", "exact"): 1,
        ("join", "measure", "duplicate"): 1,
    }


AGAIN = Reading("flow", START_MS + 2_900, 999, sequence=9, scheduled_us=MEASURE_END_MS * 1_000)


@pytest.mark.parametrize("order", ["before", "after"])
def test_an_input_that_comes_again_under_another_sequence_changes_nothing(order):
    outputs = [join(2_400), tumbling(2_400, tumbled(1, 300, 80.0))]
    inputs = [FLOW, SPEED, AGAIN]
    run = Run("join", "tumbling")
    run.add(*(outputs + inputs if order == "before" else inputs + outputs))
    run.advance(FAR_MS)
    found = run.totals()
    assert found.verdicts == {
        ("join", "measure", "exact"): 1,
        ("tumbling", "measure", "exact"): 1,
    }
    assert found.latencies["join", "latest", "measure", 100] == 1
    assert found.latencies["tumbling", "mean", "measure", 200] == 1


def test_an_input_that_comes_again_does_not_complete_a_window():
    inputs = [*TWO_LANES[2:], TWO_LANES[0], Reading("flow", START_MS + 2_020, 7, 9, lanes=2)]
    assert verdicts_of(inputs, "tumbling") == {}


def test_a_sequence_that_comes_again_keeps_its_first_time():
    again = Reading("flow", START_MS + 2_900, 300, sequence=0)
    for inputs in ([FLOW, again], [FLOW, SPEED, again]):
        found = totals_of(*inputs, raw(FLOW, 2_110))
        assert found.latencies["ingest", "latest", "measure", 10] == 1
        assert found.verdicts == {("ingest", "measure", "exact"): 1}


WHOLE = FLOW.encoded
NOT_A_RECORD = [
    ("no marker", b"{}", "not in Avro single-object encoding (marker C3 01 missing)"),
    ("empty", b"", "not in Avro single-object encoding (marker C3 01 missing)"),
    ("another record", SPEED.encoded, "expected traffic_flow, found traffic_speed v1"),
    ("cut short", WHOLE[:-1], "traffic_flow v1 does not decode"),
    ("longer than it is", WHOLE + b"\x00", "traffic_flow v1 has bytes after its end"),
    ("not UTF-8", WHOLE[:11] + b"\xff" + WHOLE[12:], "traffic_flow v1 does not decode"),
    ("a length below 0", WHOLE[:10] + b"\x01" + WHOLE[11:], "traffic_flow v1 does not decode"),
]


@pytest.mark.parametrize(
    ("value", "reason"), [row[1:] for row in NOT_A_RECORD], ids=[row[0] for row in NOT_A_RECORD]
)
def test_an_input_that_is_no_record_is_refused_and_the_rest_counts(value, reason):
    run = Run("ingest")
    bad = RawInput(START_MS + 2_050, value)
    run.add(bad, FLOW, bad, raw(FLOW, 2_104))
    assert [one.place for one in run.refused] == [0, 2]
    assert all(one.reason.startswith(reason) for one in run.refused), run.refused
    assert run.totals().verdicts == {("ingest", "measure", "exact"): 1}


class RawInput:
    """A value on traffic.flow that may be no record."""

    topic = "traffic.flow"

    def __init__(self, appended_ms, encoded):
        self.appended_ms = appended_ms
        self.encoded = encoded


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        FLOW.encoded,
        codec.encode("output_join", joined(300, 80.0))[:-1],
        codec.encode("output_join", joined(300, 80.0)) + b"\x00",
    ],
    ids=["no marker", "another record", "cut short", "longer than it is"],
)
def test_an_output_that_is_no_record_is_refused_and_unexpected(value):
    run = Run("join")
    run.add(FLOW, SPEED, Output("join", START_MS + 1_999, None, value), join(2_400))
    assert [one.place for one in run.refused] == [0]
    assert run.totals().verdicts == {
        ("join", "warm_up", "unexpected"): 1,
        ("join", "measure", "exact"): 1,
    }


def test_a_speed_that_is_not_a_number_is_passed_on_exactly():
    speed = Reading("speed", START_MS + 2_300, math.nan, sequence=1)
    outputs = [
        Output("parse", START_MS + 2_301, parsed(speed)),
        join(2_301, speed=math.nan),
        tumbling(2_301, tumbled(1, 300, math.nan)),
    ]
    assert verdicts_of([FLOW, speed, *outputs], "parse", "join", "tumbling") == {
        "exact": 3,
        "missing": 1,  # the parse of the flow
    }


def test_an_infinite_speed_is_passed_on_exactly():
    speed = Reading("speed", START_MS + 2_300, math.inf, sequence=1)
    outputs = [join(2_301, speed=math.inf), tumbling(2_301, tumbled(1, 300, math.inf))]
    assert verdicts_of([FLOW, speed, *outputs], "join", "tumbling") == {"exact": 2}


# Samples and throughput.


def test_a_wrong_output_is_sampled_with_expected_and_actual_values():
    run = Run("join")
    run.add(FLOW, SPEED, join(2_400, flow=301))
    run.totals()
    assert [json.loads(sample) for sample in run.samples] == [
        {
            "verdict": "wrong",
            "group": START_MS,
            "index": 0,
            "actual": {"num_lanes": "1", "flow": 301.0, "speed": 80.0},
            "expected": {"num_lanes": 1, "flow": 300.0, "speed": 80.0},
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
        ("traffic.flow", 3_000, 1, size - 1): 1,  # 1 takes a byte less than 300
        ("traffic.speed", 2_000, 1, len(SPEED.encoded)): 1,
    }
    assert run.evaluation.run_id == RUN_ID
