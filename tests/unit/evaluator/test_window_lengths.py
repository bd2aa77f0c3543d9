"""Expected outputs of stages 3 and 4 with longer windows."""

import numpy as np
import pytest

from schemas.protocol import RunPlan
from services.definitions.domains import load_domain
from services.definitions.workloads import load_workload_of
from services.evaluator.columnar.column_mapping import InputRows
from services.evaluator.columnar.columns import LIMITS, StateLimits
from services.evaluator.pairing.evaluation import Evaluation
from tests.traffic import TRAFFIC
from tests.unit.evaluator.records import (
    BUILT_IN,
    FAR_MS,
    MEASURE_MS,
    PHASES,
    START_MS,
    Output,
    Reading,
    Run,
    a_plan,
    slid,
    tumbled,
)

pytestmark = pytest.mark.unit

TWO_S = {"tumbling_s": 2, "sliding_s": 8}


def a_run(stage, windows=TWO_S, pipeline=None, limits=LIMITS):
    """A run of one stage with windows of 2 s, and of 8 s sliding by 2 s."""
    run = Run(stage)
    request = a_plan((stage,)).request
    pipelines = (pipeline,) if pipeline else request.pipelines
    request = request.model_copy(
        update={"domain": TRAFFIC.resolved(windows), "pipelines": pipelines}
    )
    run.evaluation = Evaluation(RunPlan(request=request, start_offsets={}), PHASES, limits=limits)
    return run


def second_of(second, flow, speed, lane="lane1", lanes=1):
    """Both kinds of one lane in one second of event time, appended 10 ms a second later."""
    place = {"observed_ms": START_MS + 1000 * second, "lane": lane, "lanes": lanes}
    at_ms = MEASURE_MS + 10 * second
    return [
        Reading("flow", at_ms, flow, sequence=2 * second, **place),
        Reading("speed", at_ms, speed, sequence=2 * second + 1, **place),
    ]


def out(stage, fields, length_s, number=50):
    fields |= {"window_end": fields["window_start"] + 1000 * length_s}
    return Output(stage, MEASURE_MS + 10 * number, fields)


def verdicts(run):
    """Verdicts after both frontiers have passed all records."""
    run.advance(FAR_MS)
    return {verdict: n for (_, _, verdict), n in run.totals().verdicts.items()}


def test_a_window_sums_its_seconds_and_counts_its_lanes_once():
    run = a_run("tumbling")
    run.add(*second_of(0, 10, 40.0), *second_of(1, 30, 60.0))
    run.add(out("tumbling", tumbled(1, 40, 50.0), 2))
    assert verdicts(run) == {"exact": 1}


def test_the_latency_is_that_from_the_latest_second():
    run = a_run("tumbling")
    run.add(*second_of(0, 10, 40.0), *second_of(1, 30, 60.0))
    run.add(out("tumbling", tumbled(1, 40, 50.0), 2, number=5))
    run.read_all()
    # Inputs at 0, 0, 10, 10 ms, the output at 50 ms.
    found = {(d, ms) for (_, d, _, ms) in run.totals().latencies}
    assert found == {("latest", 40), ("mean", 45), ("event_time", 50)}


def test_a_window_that_lacks_a_second_of_a_lane_is_not_expected():
    run = a_run("tumbling")
    run.add(*second_of(0, 10, 40.0, lanes=2), *second_of(1, 30, 60.0, lanes=2))
    run.add(*second_of(0, 10, 40.0, lane="lane2", lanes=2))
    assert verdicts(run) == {}


def test_a_window_of_another_length_is_wrong():
    run = a_run("tumbling")
    run.add(*second_of(0, 10, 40.0), *second_of(1, 30, 60.0))
    run.add(out("tumbling", tumbled(1, 40, 50.0), 1))
    assert verdicts(run) == {"wrong": 1}


def test_a_sliding_window_compares_its_three_newest_parts_and_needs_all_four():
    run = a_run("sliding")
    flows = (1, 1, 10, 30, 20, 40, 50, 70)  # sums 2, 40, 60, 120
    speeds = (1.0, 1.0, 40.0, 40.0, 50.0, 50.0, 80.0, 80.0)
    for second, (flow, speed) in enumerate(zip(flows, speeds, strict=True)):
        run.add(*second_of(second, flow, speed))
    run.add(out("sliding", slid((1.0, 2.0), (0.6, 1.0)), 8))
    assert verdicts(run) == {"exact": 1}


LOOK_BACK = load_workload_of(load_domain("traffic"), "look-back").windows


def test_changes_go_back_as_far_as_the_workload_says():
    run = a_run("sliding", LOOK_BACK)
    flows = {0: 20, 5: 40, 10: 60}
    for second in range(11):
        run.add(*second_of(second, flows.get(second, 99), 50.0))
    fields = slid((0.5, 2.0), (0.0, 0.0)) | {"window_end": START_MS + 11_000}
    run.add(Output("sliding", MEASURE_MS + 500, fields))
    assert verdicts(run) == {"exact": 1}


def test_a_change_that_goes_back_by_no_whole_part_is_refused():
    with pytest.raises(ValueError, match="flow_change_short_s must be a multiple of 2"):
        TRAFFIC.resolved({"tumbling_s": 2, "sliding_s": 8, "flow_change_short_s": 5})
    with pytest.raises(ValueError, match="the window of sliding must be longer"):
        TRAFFIC.resolved(LOOK_BACK | {"sliding_s": 10})


def test_a_sliding_window_whose_oldest_part_is_missing_is_not_expected():
    run = a_run("sliding")
    for second in range(2, 8):
        run.add(*second_of(second, 10, 40.0))
    assert verdicts(run) == {}


def test_incomplete_long_windows_are_expected_where_they_are_published():
    run = a_run("tumbling", pipeline=BUILT_IN)
    run.add(*second_of(0, 10, 40.0, lanes=2), *second_of(1, 30, 60.0, lanes=2))
    run.add(*second_of(1, 50, 80.0, lane="lane2", lanes=2)[:1])
    run.add(out("tumbling", tumbled(2, 90, 50.0), 2))
    assert verdicts(run) == {"exact": 1}


def test_a_part_that_has_nothing_is_no_change_where_incomplete_windows_are_published():
    run = a_run("sliding", pipeline=BUILT_IN)
    run.add(*second_of(3, 40, 50.0), *second_of(6, 60, 80.0), *second_of(7, 60, 80.0))
    early = slid((None, None), (None, None), start_ms=START_MS - 4000)
    # Parts from 2 s on and from 6 s on; no parts from 4 s on.
    run.add(out("sliding", early, 8), out("sliding", slid((None, 2.0), (None, 0.6)), 8))
    assert verdicts(run) == {"exact": 2}


def test_a_minute_of_many_records_has_its_exact_mean_time():
    run = a_run("tumbling", {"tumbling_s": 60, "sliding_s": 300})
    start_ms = START_MS // 60_000 * 60_000
    assert start_ms == START_MS
    for second in range(60):
        run.add(*second_of(second, 1, 50.0))
    # Inputs at 0, 10, ... 590 ms, mean 295 ms; the output at 600 ms.
    run.add(out("tumbling", tumbled(1, 60, 50.0), 60, number=60))
    run.read_all()
    assert ("tumbling", "mean", "measure", 305) in run.totals().latencies
    assert verdicts(run) == {"exact": 1}


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    # With partial windows, three that began before the load are due as well.
    [(None, {"exact": 1}), (BUILT_IN, {"exact": 1, "missing": 3})],
    ids=["withhold", "publish"],
)
def test_a_window_longer_than_anything_is_remembered_is_waited_for(pipeline, expected):
    run = a_run("sliding", {"tumbling_s": 600, "sliding_s": 2_400}, pipeline)
    for minute in range(40):
        for kind, value in (("flow", (9, 1, 2, 3)[minute // 10]), ("speed", 50.0)):
            times = range(START_MS + 60_000 * minute, START_MS + 60_000 * (minute + 1), 1_000)
            run.add(*(Reading(kind, at_ms, value, at_ms, at_ms) for at_ms in times))
        run.advance(times[-1])
    fields = slid((0.5, 2.0), (0.0, 0.0)) | {"window_end": START_MS + 2_400_000}
    run.add(Output("sliding", START_MS + 2_399_005, fields))
    assert verdicts(run) == expected
    assert run.totals().latencies["sliding", "latest", "measure", 5] == 1


def test_a_full_memory_keeps_the_parts_of_windows_that_are_not_over():
    run = a_run("sliding", limits=StateLimits(cells=0))
    for second in range(8):
        run.add(*second_of(second, 10, 40.0))
        run.advance(MEASURE_MS + 10 * second + 1)
    run.add(out("sliding", slid((0.0, 0.0), (0.0, 0.0)), 8))
    assert verdicts(run) == {"exact": 1}


def test_the_mean_time_of_millions_of_inputs_of_one_site_is_exact():
    lanes, length_s = 90_000, 30
    run = a_run("tumbling", {"tumbling_s": length_s, "sliding_s": 3 * length_s})
    run.add(Reading("flow", START_MS, 1, observed_ms=START_MS - 60_000))  # adds site a to the codes
    stage = run.evaluation.ledgers["output.p.tumbling"].stage
    state, one = stage.state, np.ones(lanes, np.int64)
    for kind, column in enumerate(("flow_vehicles_per_hour", "speed_km_per_hour")):
        for second in range(length_s):
            rows = InputRows(
                kind,
                appended_ms=(START_MS + 1_000 * second) * one,
                scheduled_us=MEASURE_MS * 1_000 * one,
                sequence=np.arange(lanes) + second * lanes,
                event_ms=(START_MS + 1_000 * second) * one,
                digest=one,
                codes={"measurement_id": 0 * one, "lane": np.arange(lanes)},
                numbers={"num_lanes": lanes * one, column: one},
            )
            state.add(rows)
    expected = stage.expected(START_MS, np.array([0]))
    assert expected.implied.all()
    assert expected.mean_input_ms().tolist() == [START_MS + 14_500]
    assert expected.mean_latency_ms(np.array([START_MS + 14_600])).tolist() == [100]
