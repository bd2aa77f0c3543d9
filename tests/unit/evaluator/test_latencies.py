"""Every latency of every stage, on rows worked out by hand.

Times are milliseconds after START_MS. By default the inputs are those of outputs.py, so a join is
due with latest 2300 and mean 2200. Late after 1000 ms, missing after 2000 ms.
"""

import pytest

from tests.unit.evaluator.outputs import (
    FLOW,
    SPEED,
    TWO_LANES,
    join,
    raw,
    sliding,
    three_seconds,
    totals_of,
    tumbling,
)
from tests.unit.evaluator.records import (
    MEASURE_MS,
    START_MS,
    Output,
    Reading,
    parsed,
    slid,
    tumbled,
)

pytestmark = pytest.mark.unit


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


@pytest.mark.parametrize(("later", "mean_ms"), [(4_499, 100), (4_500, 100), (4_501, 99)])
def test_the_mean_of_thousands_of_inputs_is_exact(later, mean_ms):
    # 9,000 inputs, of which the given number was appended a millisecond later: means slightly below
    # a half, exactly a half, and slightly above. 100 minus these is slightly above 99.5, 99.5, and
    # 99.49989.
    lanes = 4_500
    inputs = [
        Reading(
            kind,
            MEASURE_MS + int(2 * lane + n < later),
            1,
            2 * lane + n,
            lane=f"l{lane}",
            lanes=lanes,
        )
        for lane in range(lanes)
        for n, kind in enumerate(("flow", "speed"))
    ]
    for kind in ("flow", "speed"):
        mine = sorted((one for one in inputs if one.kind == kind), key=lambda one: one.appended_ms)
        inputs = [*(one for one in inputs if one.kind != kind), *mine]
    found = totals_of(*inputs, Output("tumbling", MEASURE_MS + 100, tumbled(lanes, lanes, 1.0)))
    assert found.latencies["tumbling", "mean", "measure", mean_ms] == 1


def test_tumbling_is_the_sum_of_flow_and_the_mean_of_speed_over_all_lanes():
    # Mean of 2000, 2010, 2100 and 2130 is 2060.
    found = totals_of(*TWO_LANES, tumbling(2_150, tumbled(2, 350, 75.5)))
    assert found.latencies == {
        ("tumbling", "latest", "measure", 20): 1,
        ("tumbling", "mean", "measure", 90): 1,
        ("tumbling", "event_time", "measure", 150): 1,
    }
    assert found.verdicts == {("tumbling", "measure", "exact"): 1}


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
    assert found.verdicts["sliding", "measure", "exact"] == 1


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
