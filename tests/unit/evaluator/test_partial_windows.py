"""Expected outputs of a pipeline that publishes incomplete windows: literal inputs and verdicts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.protocol import RunPlan
from services.evaluator.pairing.evaluation import Evaluation
from tests.unit.evaluator.records import (
    BUILT_IN,
    FAR_MS,
    MEASURE_MS,
    PHASES,
    START_MS,
    VALUES,
    Output,
    Reading,
    Run,
    a_plan,
    slid,
    tumbled,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]


def a_run(stage):
    """A run of one stage of a pipeline that publishes incomplete windows."""
    run = Run(stage)
    request = a_plan((stage,)).request.model_copy(update={"pipelines": (BUILT_IN,)})
    run.evaluation = Evaluation(RunPlan(request=request, start_offsets={}), PHASES)
    return run


def reading(kind, value, number, second=0, lane="lane1", lanes=2):
    """One record per 10 ms, starting 2 s after the start."""
    return Reading(
        kind,
        MEASURE_MS + 10 * number,
        value,
        sequence=number,
        observed_ms=START_MS + 1000 * second,
        lane=lane,
        lanes=lanes,
    )


def verdicts(run):
    """Verdicts after both frontiers have passed all records."""
    run.advance(FAR_MS)
    return {verdict: n for (_, _, verdict), n in run.totals().verdicts.items()}


def out(stage, number, fields):
    return Output(stage, MEASURE_MS + 10 * number, fields)


HALF = [reading("flow", 60, 0), reading("speed", 70.0, 1)]
WHOLE = [*HALF, reading("flow", 30, 2, lane="lane2"), reading("speed", 80.0, 3, lane="lane2")]


def test_a_window_that_lacks_a_lane_is_expected_with_what_it_has():
    run = a_run("tumbling")
    run.add(*HALF, out("tumbling", 9, tumbled(1, 60, 70.0)))
    assert verdicts(run) == {"exact": 1}


def test_a_window_that_lacks_a_lane_is_missing_when_it_does_not_come():
    run = a_run("tumbling")
    run.add(*HALF)
    assert verdicts(run) == {"missing": 1}


def test_a_window_of_one_kind_alone_is_not_expected():
    run = a_run("tumbling")
    run.add(reading("flow", 60, 0), reading("flow", 60, 1, lane="lane2"))
    assert verdicts(run) == {}


def test_a_complete_window_is_expected_as_ever():
    run = a_run("tumbling")
    run.add(*WHOLE, out("tumbling", 9, tumbled(2, 90, 75.0)))
    assert verdicts(run) == {"exact": 1}


@pytest.mark.parametrize("read_before", [0, 2, 4], ids=["none", "half", "all"])
def test_an_output_is_judged_by_all_inputs_before_it_whichever_were_read_first(read_before):
    run = a_run("tumbling")
    run.add(*WHOLE[:read_before], out("tumbling", 9, tumbled(2, 90, 75.0)))
    run.advance(MEASURE_MS)
    run.add(*WHOLE[read_before:])
    assert verdicts(run) == {"exact": 1}


def test_what_says_less_than_the_inputs_before_it_is_wrong():
    run = a_run("tumbling")
    run.add(*WHOLE, out("tumbling", 9, tumbled(1, 60, 70.0)))
    assert verdicts(run) == {"wrong": 1}


def test_a_second_output_of_a_window_is_a_duplicate():
    run = a_run("tumbling")
    run.add(*HALF, *[out("tumbling", 9, tumbled(1, 60, 70.0))] * 2)
    assert verdicts(run) == {"exact": 1, "duplicate": 1}


def test_a_change_against_a_second_that_has_nothing_is_null():
    run = a_run("sliding")
    run.add(
        *HALF,  # second 0
        reading("flow", 5, 2, second=1),  # without a speed: no output
        reading("flow", 90, 3, second=2),
        reading("speed", 35.0, 4, second=2),
        out("sliding", 8, slid((None, None), (None, None), start_ms=START_MS - 2000)),
        out("sliding", 9, slid((None, 0.5), (None, -0.5))),
    )
    assert verdicts(run) == {"exact": 2}


def test_a_sliding_window_whose_newest_second_has_nothing_is_not_expected():
    run = a_run("sliding")
    nothing = ((None, None), (None, None))
    run.add(
        *HALF,
        out("sliding", 8, slid(*nothing, start_ms=START_MS - 2000)),
        out("sliding", 9, slid(*nothing, start_ms=START_MS - 1000)),
    )
    assert verdicts(run) == {"exact": 1, "unexpected": 1}


LATE = [reading("flow", 30, 12, lane="lane2"), reading("speed", 80.0, 13, lane="lane2")]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_comes_after_an_output_is_not_expected_in_it(at_once):
    run = a_run("tumbling")
    run.add(*HALF, out("tumbling", 9, tumbled(1, 60, 70.0)))
    if not at_once:
        run.advance(MEASURE_MS + 100)
    run.add(*LATE)
    assert verdicts(run) == {"exact": 1}
    found = {(definition, ms) for (_, definition, _, ms) in run.totals().latencies}
    assert found == {("latest", 80), ("mean", 85), ("event_time", 90)}


def test_what_comes_before_an_output_is_expected_in_it_however_much_is_read_at_once():
    run = a_run("tumbling")
    other = tumbled(2, 90, 75.0, measurement_id="b")
    of_b = [replace(one, site="b", sequence=10 + one.sequence) for one in (*HALF, *LATE)]
    run.add(*HALF, *of_b[:2], out("tumbling", 9, tumbled(1, 60, 70.0)), *LATE, *of_b[2:])
    run.add(out("tumbling", 13, other), out("tumbling", 14, tumbled(2, 90, 75.0)))
    assert verdicts(run) == {"exact": 2, "duplicate": 1}


def test_what_comes_after_a_sliding_window_is_not_expected_in_it():
    run = a_run("sliding")
    for second, flow in enumerate((10, 20, 30)):
        run.add(reading("flow", flow, second, second), reading("speed", 50.0, second, second))
    run.add(out("sliding", 9, slid((0.5, 2.0), (0.0, 0.0))))
    run.add(*(replace(one, observed_ms=START_MS + 2_000) for one in LATE))
    found = verdicts(run)
    assert found == {"exact": 1, "missing": 2}  # windows that began before the load


EARLY = out("tumbling", -1, tumbled(2, 90, 75.0))


@pytest.mark.parametrize(
    "steps",
    [
        [([EARLY], MEASURE_MS), (WHOLE, MEASURE_MS + 60)],
        [([EARLY], MEASURE_MS), (WHOLE[:2], MEASURE_MS + 15), (WHOLE[2:], MEASURE_MS + 60)],
        [([EARLY, *WHOLE], MEASURE_MS + 60)],
        [([*WHOLE, EARLY], MEASURE_MS + 60)],
    ],
    ids=["output first", "inputs in two parts", "at once", "inputs first"],
)
def test_an_output_before_its_inputs_is_unexpected_whatever_is_read_first(steps):
    run = a_run("tumbling")
    for records, frontier_ms in steps:
        run.add(*records)
        run.advance(frontier_ms)
    run.add(out("tumbling", 9, tumbled(2, 90, 75.0)))
    assert verdicts(run) == {"exact": 1, "unexpected": 1}
    found = {(definition, ms) for (_, definition, _, ms) in run.totals().latencies}
    assert found == {("latest", 60), ("mean", 75), ("event_time", 90)}


def test_an_output_counts_the_inputs_of_its_own_millisecond():
    run = a_run("tumbling")
    run.add(out("tumbling", 3, tumbled(2, 90, 75.0)), *WHOLE)
    assert verdicts(run) == {"exact": 1}
    assert run.totals().latencies["tumbling", "latest", "measure", 0] == 1


def test_outputs_that_were_read_before_older_inputs_do_not_count_newer_ones():
    run = a_run("tumbling")
    run.add(*HALF, *LATE)
    run.advance(FAR_MS, MEASURE_MS)  # the inputs have been read, the outputs have not
    run.add(out("tumbling", 9, tumbled(1, 60, 70.0)))
    assert verdicts(run) == {"exact": 1}


def test_a_missing_window_that_gets_another_input_is_missing_since_that():
    run = a_run("tumbling")
    run.add(*HALF)
    run.advance(MEASURE_MS + 2_500)
    assert run.totals().verdict_seconds == {("tumbling", 2, "missing"): 1}
    later = [reading("flow", 30, 300, lane="lane2"), HALF[1]]  # the second one repeats the state
    run.add(*(replace(one, appended_ms=MEASURE_MS + 3_000) for one in later))
    run.advance(FAR_MS)
    assert run.totals().verdict_seconds == {("tumbling", 5, "missing"): 1}


def test_a_missing_window_that_gets_a_record_again_stays_missing():
    run = a_run("tumbling")
    run.add(*HALF)
    run.advance(MEASURE_MS + 2_500)
    run.add(replace(HALF[1], appended_ms=MEASURE_MS + 3_000))
    run.advance(FAR_MS)
    assert run.totals().verdict_seconds == {("tumbling", 2, "missing"): 1}


KINDS = ("flow", "speed")


@st.composite
def disorders(draw):
    """Records of two sites and two windows after the first of each, and outputs, in any order."""
    places = [(site, second) for site in "ab" for second in (0, 1)]
    records = [
        replace(reading(kind, 60, 0, second), site=site)
        for site, second in places
        for kind in ("flow", "speed")
    ]
    for number, place in enumerate(draw(st.lists(st.sampled_from(places), max_size=24)), 1):
        at_ms = MEASURE_MS + draw(st.integers(1, 12))
        if draw(st.booleans()):
            site, second = place
            lane, kind = draw(st.sampled_from(["lane1", "lane2"])), draw(st.sampled_from(KINDS))
            late = reading(kind, 60, number, second, lane)
            records.append(replace(late, site=site, appended_ms=at_ms))
        else:
            lanes, start_ms = draw(st.integers(1, 2)), START_MS + 1_000 * place[1]
            said = tumbled(lanes, 60 * lanes, 60.0, start_ms=start_ms, measurement_id=place[0])
            records.append(Output("tumbling", at_ms, said))
    return [
        replace(one, sequence=number) if isinstance(one, Reading) else one
        for number, one in enumerate(sorted(records, key=lambda one: one.appended_ms))
    ]


@given(records=disorders(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_totals_do_not_depend_on_how_much_is_read_at_once(records, data):
    by_time = a_run("tumbling")
    at_ms = MEASURE_MS
    for one in records:
        by_time.advance(max(at_ms, one.appended_ms))
        by_time.add(one)
        at_ms = one.appended_ms
    by_time.advance(FAR_MS)
    at_once = a_run("tumbling")
    for topic in data.draw(st.permutations(sorted({one.topic for one in records}))):
        at_once.add(*(one for one in records if one.topic == topic))
    at_once.advance(FAR_MS)
    assert at_once.totals() == by_time.totals()


def test_windows_of_the_first_and_the_last_of_many_keys():
    run = a_run("tumbling")
    run.add(*(replace(reading("flow", 60, number), site=f"s{number}") for number in range(200)))
    for number in (0, 199):
        site = f"s{number}"
        before = [reading(kind, 70, 300 + number + at, 1) for at, kind in enumerate(VALUES)]
        after = reading("flow", 30, 310 + number, 1, lane="lane2")
        fields = tumbled(1, 70, 70.0, start_ms=START_MS + 1000, measurement_id=site)
        first, second, last = (replace(one, site=site) for one in (*before, after))
        run.add(first, second, out("tumbling", 305 + number, fields), last)
    assert verdicts(run) == {"exact": 2}
