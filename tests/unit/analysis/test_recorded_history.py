"""Change points in a recorded history of steady runs on one machine, replayed a hundred times."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.changes.finding import find_changes
from analysis.changes.series import Series
from tests.unit.analysis.histories import recorded, replayed

pytestmark = pytest.mark.unit

REPLAYS, RIGHT = 100, 95
RUNS, BEFORE = 40, 20
NEAR = 5  # runs between the planted change and the reported one
RECORDED = recorded()
MEANS = [one for one in RECORDED if one.metric == "mean_ms"]


def slower(series: Series, place: int, share: float) -> Series:
    """The series with every run from a place on slower by a share."""
    points = (
        replace(one, value=(1 + share) * one.value) if n >= place else one
        for n, one in enumerate(series.points)
    )
    return replace(series, points=tuple(points))


def test_a_tenth_is_found_in_95_of_100() -> None:
    found = 0
    for seed in range(REPLAYS):
        random = np.random.default_rng(seed)
        stage = MEANS[seed % len(MEANS)]
        (drawn,) = replayed([stage], RUNS, random)
        changes = find_changes([slower(drawn, BEFORE, 0.1)])
        places = [int(one.first_run_id.removeprefix("run-")) for one in changes]
        found += any(abs(place - BEFORE) <= NEAR for place in places)
    assert found >= RIGHT


def test_nothing_is_reported_in_95_of_100_without_a_change() -> None:
    """Of all figures of all stages of a run together."""
    alarms = 0
    for seed in range(REPLAYS):
        alarms += bool(find_changes(replayed(RECORDED, RUNS, np.random.default_rng(seed))))
    assert alarms <= REPLAYS - RIGHT
