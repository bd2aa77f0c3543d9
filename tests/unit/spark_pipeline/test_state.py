"""Kinds with custom state: the pure functions on literal rows."""

from functools import partial

import pytest

from services.spark_pipeline.stages.with_state import (
    Layout,
    Made,
    Spans,
    changed_windows,
    complete_windows,
    forget,
    joined,
    remember,
)

pytestmark = pytest.mark.unit

KEEP_MS = 10_000
# Event time, lane, number of lanes, flow, speed.
LAYOUT = Layout(place=2, inputs=(3, 4), most=2)
LANES, FLOW, SPEED = Made("count_distinct", (1,)), Made("sum", (3,)), Made("mean", (4,))
JOINED = partial(joined, layout=LAYOUT, aggregates=tuple(Made("max", (n,)) for n in (2, 3, 4)))
COMPARED = ((FLOW, 1), (FLOW, 2), (SPEED, 1), (SPEED, 2))


def flow(time_ms, value, lane="lane1", num_lanes=1):
    return (time_ms, lane, num_lanes, value, None)


def speed(time_ms, value, lane="lane1", num_lanes=1):
    return (time_ms, lane, num_lanes, None, value)


def both(time_ms, flow_value, speed_value, **where):
    return [flow(time_ms, flow_value, **where), speed(time_ms, speed_value, **where)]


def published(rule, *batches):
    """Outputs of a rule, batch by batch."""
    memory, found = {}, []
    for rows in batches:
        found.append(list(rule(memory, remember(memory, rows, LAYOUT, KEEP_MS))))
        forget(memory, KEEP_MS)
    return found


def windows(size_ms=1000, slide_ms=1000):
    spans = Spans(size_ms, slide_ms)
    return partial(complete_windows, layout=LAYOUT, aggregates=(LANES, FLOW, SPEED), spans=spans)


def changes(size_ms=3000, slide_ms=1000):
    spans = Spans(size_ms, slide_ms)
    return partial(changed_windows, layout=LAYOUT, compared=COMPARED, spans=spans)


def tumbled(*batches):
    return published(windows(), *batches)


def test_join_publishes_a_pair_in_the_batch_of_its_second_kind():
    found = published(JOINED, [speed(0, 80.0), flow(1000, 7)], [flow(0, 60)])
    assert found == [[], [(0, "lane1", 1, 60, 80.0)]]


def test_join_publishes_a_pair_once_whatever_comes_again():
    found = published(JOINED, both(0, 60, 80.0), [flow(0, 60), speed(0, 1.0), flow(0, 2)])
    assert found == [[(0, "lane1", 1, 60, 80.0)], []]


def test_join_takes_a_flow_of_zero_as_a_flow():
    assert published(JOINED, both(0, 0, 0.0)) == [[(0, "lane1", 1, 0, 0.0)]]


def test_join_passes_over_what_is_older_than_it_keeps():
    found = published(JOINED, [speed(0, 80.0), flow(10_001, 1)], [flow(0, 60)], [flow(1, 5)])
    assert found == [[], [], []]


def test_a_batch_of_a_minute_is_complete_although_all_its_flows_come_first():
    seconds = range(60)
    rows = [flow(1000 * second, 60) for second in seconds]
    rows += [speed(1000 * second, 80.0) for second in seconds]
    pairs = [(1000 * second, "lane1", 1, 60, 80.0) for second in seconds]
    assert published(JOINED, rows) == [pairs]
    assert [start_ms for start_ms, *_ in tumbled(rows)[0]] == [1000 * each for each in seconds]


def test_what_is_kept_is_bounded_by_event_time():
    memory = {}
    for second in range(100):
        remember(memory, both(1000 * second, 60, 80.0), LAYOUT, KEEP_MS)
        forget(memory, KEEP_MS)
    assert sorted(memory) == [(1000 * second, "lane1") for second in range(89, 100)]


def test_tumbling_publishes_a_window_once_when_its_last_lane_is_there():
    lane2 = {"lane": "lane2", "num_lanes": 2}
    found = tumbled(both(0, 60, 70.0, num_lanes=2), [flow(999, 30, **lane2)],
                    [speed(999, 80.0, **lane2)], [flow(999, 30, **lane2)])  # fmt: skip
    assert found == [[], [], [(0, 2, 90, 75.0)], []]


def test_tumbling_publishes_several_windows_of_one_batch_each():
    found = tumbled([*both(1000, 1, 10.0), *both(0, 2, 20.0), flow(2000, 3)])
    assert found == [[(0, 1, 2, 20.0), (1000, 1, 1, 10.0)]]


def test_a_long_window_needs_every_lane_in_every_second():
    rule = windows(2000, 2000)
    rows = [*both(0, 10, 40.0), *both(1000, 30, 60.0)]
    assert published(rule, rows) == [[(0, 1, 40, 50.0)]]
    assert published(rule, rows[:3]) == [[]]


def test_long_sliding_windows_compare_sums_of_their_newest_parts():
    # Parts of 2 s with flows 1 + 1, 10 + 30, 20 + 40, 50 + 70.
    flows = (1, 1, 10, 30, 20, 40, 50, 70)
    rows = [row for second, value in enumerate(flows) for row in both(1000 * second, value, 9.0)]
    rule = changes(8000, 2000)
    assert published(rule, rows) == [[(0, 1.0, 2.0, 0.0, 0.0)]]


def test_tumbling_withholds_a_window_that_lacks_a_lane():
    assert tumbled(both(0, 60, 70.0, num_lanes=2), both(5000, 1, 1.0)) == [
        [],
        [(5000, 1, 1, 1.0)],
    ]


def test_sliding_compares_the_newest_second_with_the_two_before_whatever_their_order():
    found = published(
        changes(), [*both(2000, 150, 99.0), *both(0, 120, 66.0)], both(1000, 100, 88.0)
    )
    assert found == [[], [(0, 0.5, 0.25, 0.125, 0.5)]]


def test_sliding_has_no_change_against_zero():
    rows = [*both(0, 0, 50.0), *both(1000, 100, 0.0), *both(2000, 50, 40.0)]
    assert published(changes(), rows) == [[(0, -0.5, None, None, -0.2)]]


def test_sliding_publishes_every_window_of_consecutive_seconds_once():
    found = published(changes(), *(both(1000 * second, 1, 1.0) for second in range(5)))
    assert [[row[0] for row in rows] for rows in found] == [[], [], [0], [1000], [2000]]
