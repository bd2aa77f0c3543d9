"""Ambiguous inputs: their expected outputs are defined here by literal values."""

import numpy as np
import pyarrow as pa
import pytest

from services.evaluator.columnar.columns import UNKNOWN, StateLimits, TooMuchStateError
from services.evaluator.columnar.value_codes import Dictionary, Pairs
from tests.unit.evaluator.records import (
    FAR_MS,
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

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]


def reading(kind, value, number, observed_ms=START_MS, **fields):
    return Reading(kind, START_MS + 2_000 + number, value, number, observed_ms, **fields)


def out(stage, fields, number=50):
    return Output(stage, START_MS + 2_000 + number, fields)


FLOW, SPEED = reading("flow", 300, 0), reading("speed", 80.0, 1)
FLOW_AGAIN = reading("flow", 300, 2)
HALF_LATER = reading("flow", 40, 3, START_MS + 500)


def test_a_record_that_comes_again_counts_once_in_a_window():
    inputs = (FLOW, SPEED, FLOW_AGAIN)
    assert verdicts_of([*inputs, out("tumbling", tumbled(1, 300, 80.0))], "tumbling") == {
        "exact": 1
    }
    assert verdicts_of([*inputs, out("tumbling", tumbled(2, 600, 80.0))], "tumbling") == {
        "wrong": 1
    }


def test_a_lane_that_reports_twice_in_a_window_counts_with_its_first_report():
    inputs = (FLOW, SPEED, HALF_LATER)
    assert verdicts_of([*inputs, out("tumbling", tumbled(1, 300, 80.0))], "tumbling") == {
        "exact": 1
    }


def test_both_reports_of_a_lane_are_joined():
    half_later = reading("speed", 60.0, 4, START_MS + 500)
    outputs = (
        out("join", joined(300, 80.0)),
        out("join", joined(40, 60.0, observed_at=START_MS + 500)),
    )
    assert verdicts_of([FLOW, SPEED, HALF_LATER, half_later, *outputs], "join") == {"exact": 2}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_numbers_of_lanes_that_disagree_the_largest_counts(order):
    pair = [reading("flow", 300, 0, lanes=2), reading("speed", 80.0, 1, lanes=1)]
    inputs = [pair[place] for place in order]
    assert verdicts_of([*inputs, out("join", joined(300, 80.0, num_lanes=2))], "join") == {
        "exact": 1
    }
    assert verdicts_of([*inputs, out("tumbling", tumbled(1, 300, 80.0))], "tumbling") == {
        "unexpected": 1
    }


ONE_LANE = (reading("flow", 10, 0), reading("speed", 40.0, 1))
TWO_LANES = (
    reading("flow", 20, 10, lane="lane2", lanes=2),
    reading("speed", 60.0, 20, lane="lane2", lanes=2),
)


@pytest.mark.parametrize("read_at_once", [True, False])
@pytest.mark.parametrize(
    ("number", "fields", "verdict", "latest_ms"),
    [
        (5, tumbled(1, 10, 40.0), "exact", 4),  # complete with one lane
        (15, tumbled(1, 10, 40.0), "wrong", -5),  # incomplete: judged when the window is complete
        (15, tumbled(2, 30, 50.0), "exact", -5),
        (30, tumbled(2, 30, 50.0), "exact", 10),
        (-3, tumbled(1, 10, 40.0), "exact", -4),
    ],
)
def test_an_output_is_judged_by_the_lanes_that_were_known_in_its_millisecond(
    number, fields, verdict, latest_ms, read_at_once
):
    run = Run("tumbling")
    run.add(out("tumbling", fields, number))
    for one in (*ONE_LANE, *TWO_LANES):
        if not read_at_once:
            run.advance(min(one.appended_ms, START_MS + 2_000 + number))
        run.add(one)
    run.advance(FAR_MS)
    found = run.totals()
    assert found.verdicts == {("tumbling", "measure", verdict): 1}
    assert found.latencies["tumbling", "latest", "measure", latest_ms] == 1


def test_more_lanes_than_they_say_make_a_window_incomplete_from_then_on():
    extra = reading("flow", 20, 10, lane="lane2")
    late = (out("tumbling", tumbled(1, 10, 40.0), 12), out("tumbling", tumbled(1, 10, 40.0), 5))
    assert verdicts_of([late[1], *ONE_LANE, extra], "tumbling") == {"exact": 1}
    assert verdicts_of([late[0], *ONE_LANE, extra], "tumbling") == {"unexpected": 1}


HUGE, MEAN = 3e16, 1.0  # (3e16 + 3 - 3e16) / 3; adding in another order may give 4 / 3


def of_both_signs():
    flows = [reading("flow", 1, n, lane=f"lane{n}", lanes=3) for n in range(3)]
    speeds = [
        reading("speed", value, 3 + n, lane=f"lane{n}", lanes=3)
        for n, value in enumerate((HUGE, 3.0, -HUGE))
    ]
    return [*flows, *speeds]


def test_a_mean_of_both_signs_may_be_off_by_what_the_order_of_adding_does():
    assert (HUGE + 3.0 - HUGE) / 3 != (HUGE - HUGE + 3.0) / 3 == MEAN
    for speed in (MEAN, (HUGE + 3.0 - HUGE) / 3):
        assert verdicts_of(
            [*of_both_signs(), out("tumbling", tumbled(3, 3, speed))], "tumbling"
        ) == {"exact": 1}


def test_a_mean_of_one_sign_may_not_be_off():
    wrong = out("tumbling", tumbled(1, 300, 80.000001))
    assert verdicts_of([FLOW, SPEED, wrong], "tumbling") == {"wrong": 1}


def test_a_change_is_held_against_the_sums_behind_it():
    records = []
    for second, speeds in enumerate([(1e6, -1e6 + 3.0), (1e6, -1e6 + 6.0), (1e6, -1e6 + 9.0)]):
        for lane, value in enumerate(speeds):
            for kind, said in (("flow", 1), ("speed", value)):
                records.append(
                    reading(
                        kind,
                        said,
                        len(records),
                        START_MS + 1000 * second,
                        lane=f"lane{lane}",
                        lanes=2,
                    )
                )
    near = slid((0.0, 0.0), (0.5 + 1e-5, 2.0 - 1e-5))
    assert verdicts_of([*records, out("sliding", near)], "sliding") == {"exact": 1}
    far = slid((0.0, 0.0), (0.5 + 1e-1, 2.0))
    assert verdicts_of([*records, out("sliding", far)], "sliding") == {"wrong": 1}
    assert verdicts_of([*records, out("sliding", slid((1e-5, 0.0), (0.5, 2.0)))], "sliding") == {
        "wrong": 1
    }


@pytest.mark.parametrize("stage", ["parse", "join", "tumbling"])
def test_what_belongs_to_a_forgotten_time_is_passed_over_and_forgetting_goes_on(stage):
    run = Run(stage, limits=StateLimits(keep_s=5))
    run.add(FLOW, SPEED, *right(stage, FLOW, SPEED))
    run.advance(START_MS + 60_000)
    assert run.evaluation.cells() == 0
    run.add(Reading("flow", START_MS + 60_001, 7, 0, START_MS))
    run.add(Reading("speed", START_MS + 60_002, 7, 1, START_MS))
    assert run.evaluation.cells() == 0
    later = [
        Reading(kind, START_MS + 60_003, 9, (1 << 16) + n, START_MS + 60_000)
        for n, kind in enumerate(("flow", "speed"))
    ]
    run.add(*later, *right(stage, *later))
    run.advance(FAR_MS)
    assert run.evaluation.cells() == 0
    assert run.totals().verdicts == {(stage, "measure", "exact"): 4 if stage == "parse" else 2}


def right(stage, flow, speed):
    """The expected output of a stage for a flow and a speed, 10 ms later."""
    start_ms, values = flow.observed_ms, (int(flow.value), float(speed.value))
    fields = {
        "parse": [parsed(flow), parsed(speed)],
        "join": [joined(*values, observed_at=start_ms)],
        "tumbling": [tumbled(1, *values, start_ms=start_ms)],
    }
    return [Output(stage, speed.appended_ms + 10, one) for one in fields[stage]]


def test_names_are_bounded():
    codes = Dictionary(StateLimits(names=2))
    assert codes.codes(pa.array(["a", "b", "a"])).tolist() == [0, 1, 0]
    assert codes.codes(pa.array(["b", "c"]), of_outputs=True).tolist() == [1, UNKNOWN]
    with pytest.raises(TooMuchStateError, match="more than 2 names"):
        codes.codes(pa.array(["c"]))
    unknown = Pairs().of(
        codes.codes(pa.array(["c", "b"]), of_outputs=True),
        codes.codes(pa.array(["a", "a"])),
    )
    assert unknown.tolist() == [UNKNOWN, 0]


def test_an_output_with_a_name_beyond_the_bound_is_unexpected():
    stray = [out("tumbling", tumbled(1, 1, 1.0, measurement_id=name)) for name in ("x", "y")]
    good = out("tumbling", tumbled(1, 300, 80.0))
    verdicts = verdicts_of([FLOW, SPEED, *stray, good], "tumbling", limits=StateLimits(names=1))
    assert verdicts == {"exact": 1, "unexpected": 2}


def texts(*names):
    return pa.array(names, pa.string())


def test_names_of_outputs_alone_leave_the_others_to_inputs():
    codes = Dictionary(StateLimits(names=4, unclaimed=2))
    strays = texts("a", "b", "c")
    assert codes.codes(strays, of_outputs=True).tolist() == [0, 1, UNKNOWN]
    assert codes.codes(texts("x", "y", "x")).tolist() == [2, 3, 2]
    assert codes.codes(strays, of_outputs=True).tolist() == [0, 1, UNKNOWN]


def test_a_name_that_an_input_has_too_is_not_of_outputs_alone():
    codes = Dictionary(StateLimits(unclaimed=1, unclaimed_bytes=2_000))
    for number in range(5):
        name = texts(str(number) * 1_500)
        assert codes.codes(name, of_outputs=True).tolist() == [number]
        assert codes.codes(name).tolist() == [number]


def test_long_names_of_outputs_alone_are_bounded_by_their_size():
    codes = Dictionary(StateLimits(unclaimed_bytes=3_000))
    strays = texts("a" * 2_000, "b" * 2_000, "c")
    assert codes.codes(strays, of_outputs=True).tolist() == [0, UNKNOWN, 1]
    assert len(codes) == 2


def test_an_input_with_a_name_for_which_outputs_had_no_room_is_refused():
    """Outputs with that name have been called unexpected."""
    limits = StateLimits(unclaimed=1)
    codes, pairs = Dictionary(limits), Pairs(limits)
    codes.codes(texts("a", "b"), of_outputs=True)
    assert codes.codes(texts("a", "c")).tolist() == [0, 1]
    with pytest.raises(TooMuchStateError, match="Outputs had too many names"):
        codes.codes(texts("b"))
    assert pairs.of(np.array([1, 1]), np.array([1, 2]), of_outputs=True).tolist() == [0, UNKNOWN]
    assert pairs.of(np.array([1, 2]), np.array([1, 1])).tolist() == [0, 1]
    with pytest.raises(TooMuchStateError, match="Outputs had too many names"):
        pairs.of(np.array([1]), np.array([2]))


@pytest.mark.parametrize("stage", ["join", "tumbling"])
def test_outputs_with_many_names_do_not_keep_inputs_from_having_any(stage):
    limits = StateLimits(names=8, unclaimed=3)
    fields = {"join": joined(300, 80.0), "tumbling": tumbled(1, 300, 80.0)}[stage]
    strays = [out(stage, fields | {"measurement_id": f"stray {n}"}) for n in range(20)]
    verdicts = verdicts_of([*strays, FLOW, SPEED, out(stage, fields)], stage, limits=limits)
    assert verdicts == {"exact": 1, "unexpected": 20}
