"""Thresholds of a watch: which figures its runs have, and how they are judged."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.watcher import counting
from services.watcher.counting import LatencyCounts, RunTotals
from services.watcher.runs import judged_run
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit


def totals(verdicts=None, counts=None, **records):
    """Totals of a run; counts: outputs by latency."""
    found = RunTotals(Counter(verdicts or {}), **records)
    for latency_ms, count in (counts or {}).items():
        found.latencies.add(latency_ms, count)
    return found


HOUR = totals(
    {"exact": 98, "late": 2, "missing": 3, "duplicate": 1},
    {4: 90, 20: 8, 900: 2},
    inputs=7_200,
    outputs=3_600,
)
HOUR.visible.add(1_000, 90)
HOUR.visible.add(2_000, 10)


@pytest.mark.parametrize(
    ("line", "value", "passed"),
    [
        ("p50_ms <= 4", 4, True),
        ("p99_ms <= 500", 900, False),
        ("min_ms >= 4", 4, True),
        ("visible.p50_ms <= 900", 1_000, False),
        ("output.visible.max_ms <= 2000", 2_000, True),
        ("mean_ms < 24", 23.2, True),
        ("missing <= 0", 3, False),
        ("not_exact <= 6", 6, True),
        ("outputs >= 102", 101, False),
        ("records_per_second >= 1", 1.0, True),
        ("input.records >= 7200", 7_200, True),
        ("input.records_per_second > 2", 2.0, False),
    ],
)
def test_each_figure_of_an_hour_is_compared_with_its_limit(line, value, passed):
    watch = a_watch(thresholds=[line])
    (row,) = judged_run(watch, HOUR, 3_600)
    stage = "" if line.startswith("input") else "output"
    assert (row.value, row.passed, row.stage) == (pytest.approx(value), passed, stage)
    assert row.pipeline == ("w" if stage else "")


ALL = ["p99_ms <= 500", "missing <= 0", "outputs >= 1", "records_per_second >= 0.1"]


def judged(found, watched_s, **fields):
    rows = judged_run(a_watch(thresholds=ALL, **fields), found, watched_s)
    return {row.threshold.split(" ")[0]: (row.value, row.passed) for row in rows}


def test_an_hour_without_anything_has_no_latency_to_judge():
    assert judged(totals(), 3_600) == {
        "output.missing": (0, True),
        "output.outputs": (0, False),
        "output.records_per_second": (0.0, False),
    }


def test_an_hour_whose_outputs_are_all_missing_fails_the_limit_of_latency():
    found = judged(totals({"missing": 5}, inputs=5), 3_600)
    assert found["output.p99_ms"] == (None, False)
    assert found["output.missing"] == (5, False)


def test_rates_are_of_the_time_that_was_watched():
    assert judged(totals({"exact": 1}, {3: 1}, outputs=6), 60)["output.records_per_second"] == (
        0.1,
        True,
    )
    assert set(judged(totals({"exact": 1}, {3: 1}, outputs=6), 0)) == {
        "output.p99_ms",
        "output.missing",
        "output.outputs",
    }


@given(
    st.lists(st.tuples(st.integers(-50, 300), st.integers(1, 9)), max_size=60), st.integers(0, 5)
)
def test_latencies_are_counted_exactly_also_over_a_restart(added, most_new):
    expected: Counter[int] = Counter()
    found = LatencyCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MOST_NEW", most_new)
        for place, (latency_ms, count) in enumerate(added):
            found.add(latency_ms, count)
            expected[latency_ms] += count
            if place == len(added) // 2:
                saved = [np.frombuffer(one.tobytes(), np.int64) for one in found.columns()]
                found = LatencyCounts()
                found.restore(*saved)
    assert found.counts() == expected
    assert found.columns()[0].tolist() == sorted(expected)


def test_latency_until_outputs_are_visible_is_unknown_without_transactions():
    found = totals({"exact": 1}, {4: 1})
    (row,) = judged_run(a_watch(thresholds=["visible.p99_ms <= 500"]), found, 3_600)
    assert (row.threshold, row.value, row.passed) == ("output.visible.p99_ms <= 500", None, False)
