"""Thresholds of a watch: which figures its runs have, and how they are judged."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.watcher import counting
from services.watcher.counting import LatencyCounts, RunTotals
from services.watcher.group_lag import LagTotals, ObservedGroup, PartitionLag
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
    (row,) = judged_run(watch, HOUR, (0, 3_600_000))
    stage = "" if line.startswith("input") else "output"
    assert (row.value, row.passed, row.stage) == (pytest.approx(value), passed, stage)
    assert row.pipeline == ("w" if stage else "")


ALL = ["p99_ms <= 500", "missing <= 0", "outputs >= 1", "records_per_second >= 0.1"]


def judged(found, watched_s, **fields):
    rows = judged_run(a_watch(thresholds=ALL, **fields), found, (0, 1_000 * watched_s))
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
    (row,) = judged_run(a_watch(thresholds=["visible.p99_ms <= 500"]), found, (0, 3_600_000))
    assert (row.threshold, row.value, row.passed) == ("output.visible.p99_ms <= 500", None, False)


def behind(group, at_s, **ages_s):
    """A group that is behind in some topics; None for an unknown age."""
    partitions = (
        PartitionLag(topic, 0, "", 0, 7, behind_ms=None if age_s is None else 1_000 * age_s)
        for topic, age_s in ages_s.items()
    )
    return ObservedGroup(group, 1_000 * at_s, tuple(partitions))


def lags_of(*observed):
    found = totals({"exact": 1})
    for each in observed:
        found.lags.add(each)
    return found


def judged_lags(found, line="group.lag_seconds <= 30", until_s=60):
    watch = a_watch(groups=["app", "other"], thresholds=[line])
    rows = judged_run(watch, found, (0, 1_000 * until_s))
    return {row.stage: (row.value, row.passed, row.reason) for row in rows}


NO_REASON = "has no such figure"


def test_each_group_is_judged_by_the_longest_lag_of_all_its_topics_in_the_run():
    found = lags_of(
        *(behind("app", at_s, a=at_s // 2, b=1) for at_s in range(0, 61, 5)),
        *(behind("other", at_s, a=31 if at_s == 30 else 0) for at_s in range(0, 61, 5)),
    )
    assert judged_lags(found) == {
        "group app": (30, True, NO_REASON),
        "group other": (31, False, NO_REASON),
    }
    assert judged_lags(found, "group.lag_records <= 6") == {
        "group app": (7, False, NO_REASON),
        "group other": (7, False, NO_REASON),
    }


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        ((), "was not known for 60 s"),
        ((behind("app", 31, a=0), behind("app", 60, a=0)), "was not known for 31 s"),
        ((behind("app", 0, a=0), behind("app", 29, a=0)), "was not known for 31 s"),
        ([behind("app", at_s, a=0) for at_s in (0, 10, 45, 60)], "was not known for 35 s"),
        ([behind("app", at_s, a=0, b=None) for at_s in range(0, 61, 5)], "was not known for 60 s"),
    ],
)
def test_a_lag_that_was_not_known_all_along_fails_its_threshold(observed, why):
    assert judged_lags(lags_of(*observed))["group app"] == (None, False, why)


def test_a_lag_that_exceeds_its_limit_fails_with_its_value_though_it_was_not_always_known():
    assert judged_lags(lags_of(behind("app", 1, a=31)))["group app"] == (31, False, NO_REASON)


def test_a_lag_that_was_unknown_for_at_most_half_a_minute_is_judged():
    found = lags_of(behind("app", 30, a=4), behind("app", 60, a=2))
    assert judged_lags(found)["group app"] == (4, True, NO_REASON)


def test_lags_of_a_run_are_as_before_after_they_were_saved():
    found = lags_of(behind("app", 1, a=3, b=None), behind("app", 40, a=2, b=1)).lags
    again = LagTotals()
    again.restore(found.saved())
    assert again.rows() == found.rows()
    for figure, unknown_ms in (("lag_records", 39_000), ("lag_seconds", 40_000)):
        assert again.unknown_ms("app", figure, 0, 60_000) == unknown_ms
        assert found.unknown_ms("app", figure, 0, 60_000) == unknown_ms
