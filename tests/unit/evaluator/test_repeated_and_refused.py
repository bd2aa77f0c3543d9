"""Repeated inputs and outputs, and values that do not decode.

Times are milliseconds after START_MS. By default the inputs are those of outputs.py, so a join is
due with latest 2300 and mean 2200. Late after 1000 ms, missing after 2000 ms.
"""

import math

import pytest

from tests.traffic import CODEC
from tests.unit.evaluator.outputs import FLOW, SPEED, TWO_LANES, join, raw, totals_of, tumbling
from tests.unit.evaluator.records import (
    FAR_MS,
    MEASURE_END_MS,
    START_MS,
    Output,
    Reading,
    Run,
    joined,
    parsed,
    tumbled,
    verdicts_of,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]


def test_the_same_output_in_a_batch_of_its_own_is_a_duplicate():
    run = Run("join")
    run.add(FLOW, SPEED)
    run.add(join(2_400))
    run.add(join(2_500))
    run.read_all()
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
    ("cut short", WHOLE[:-1], "traffic_flow v1 cannot be decoded"),
    ("longer than it is", WHOLE + b"\x00", "traffic_flow v1 has trailing bytes"),
    ("not UTF-8", WHOLE[:11] + b"\xff" + WHOLE[12:], "traffic_flow v1 cannot be decoded"),
    ("a length below 0", WHOLE[:10] + b"\x01" + WHOLE[11:], "traffic_flow v1 cannot be decoded"),
]


@pytest.mark.parametrize(
    ("value", "reason"), [row[1:] for row in NOT_A_RECORD], ids=[row[0] for row in NOT_A_RECORD]
)
def test_an_input_that_is_no_record_is_refused_and_the_rest_counts(value, reason):
    run = Run("ingest")
    bad = RawInput(START_MS + 2_050, value)
    run.add(bad, FLOW, bad, raw(FLOW, 2_104))
    run.read_all()
    assert [one.place for one in run.refused] == [0, 2]
    assert all(one.reason.startswith(reason) for one in run.refused), run.refused
    assert run.totals().verdicts == {("ingest", "measure", "exact"): 1}


class RawInput:
    """A value on traffic.flow that may not decode."""

    topic = "traffic.flow"

    def __init__(self, appended_ms, encoded):
        self.appended_ms = appended_ms
        self.encoded = encoded


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        FLOW.encoded,
        CODEC.encode("output_join", joined(300, 80.0))[:-1],
        CODEC.encode("output_join", joined(300, 80.0)) + b"\x00",
    ],
    ids=["no marker", "another record", "cut short", "longer than it is"],
)
def test_an_output_that_is_no_record_is_refused_and_unexpected(value):
    run = Run("join")
    run.add(FLOW, SPEED, Output("join", START_MS + 1_999, None, value), join(2_400))
    run.read_all()
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
