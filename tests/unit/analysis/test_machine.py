"""Latencies adjusted for the pace of the machine."""

import json
import lzma
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.changes.causes import LEAST_RUNS, without_machine
from analysis.changes.finding import find_changes
from analysis.changes.series import TYPICAL, Point
from tests.unit.analysis.histories import a_point, a_series
from tests.unit.analysis.recorded_history import alarms, detections

pytestmark = pytest.mark.unit

# 40 runs one after the other on two virtual cores, 2026-11-25: ./tidegauge bench changes
RECORDED = Path(__file__).parent / "data" / "history.json.xz"
RUNS = 60


def test_a_tenth_is_found_in_a_recorded_history_and_nothing_where_nothing_changed() -> None:
    history = json.loads(lzma.decompress(RECORDED.read_bytes()))
    assert detections(history, replays=100, each_side=40) >= 95
    assert alarms(history, replays=40, each_side=40) <= 2


def runs_of(
    exponent: float, slower: Callable[[int], float] = lambda _n: 1.0, **fields: Any
) -> list[Point]:
    """Runs of a machine whose pace drifts by a tenth, with errors of a hundredth in the latency and
    in the CPU time. slower: factor of the latency by run."""
    random = np.random.default_rng(1)
    found = []
    for n in range(RUNS):
        pace = 0.1 * math.sin(2 * math.pi * n / 30)
        value = 4.0 * slower(n) * math.exp(exponent * pace + random.normal(0, 0.01))
        took_us = 280 * math.exp(pace + random.normal(0, 0.01))
        found.append(replace(a_point(n, value, **fields), generator_us=took_us))
    return found


def spread(values: list[float]) -> float:
    return float(np.std(np.log(values)))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_what_the_machine_adds_is_taken_out(exponent: float) -> None:
    found = without_machine(runs_of(exponent))
    assert spread(found) < 0.05
    assert np.median(found) == pytest.approx(4.0, rel=0.03)


def test_a_change_that_lasts_stays() -> None:
    found = without_machine(runs_of(2.5, lambda n: 1.1 if n >= RUNS // 2 else 1.0))
    before, after = (np.median(side) for side in (found[: RUNS // 2], found[RUNS // 2 :]))
    assert after / before == pytest.approx(1.1, rel=0.03)


def test_a_change_is_told_with_the_adjusted_levels() -> None:
    points = runs_of(2.5, lambda n: 1.2 if n >= RUNS // 2 else 1.0)
    series = replace(a_series([]), metric=TYPICAL, points=tuple(points))
    (change,) = find_changes([series])
    detail = change.detail()
    assert change.first_run_id == f"run-{RUNS // 2}"
    assert detail["change"] == pytest.approx(0.2, abs=0.03)
    assert detail["after"]["high"] / detail["after"]["low"] < 1.2
    unadjusted = replace(series, points=tuple(replace(one, generator_us=None) for one in points))
    assert find_changes([unadjusted]) == []


def with_revision(points: list[Point], begin: int, took: float = 1.0) -> list[Point]:
    """The runs with another revision from one on, whose generator takes so much of the CPU time."""
    new = [
        replace(
            point,
            request=a_point(n, 1.0, tidegauge="2").request,
            generator_us=took * (point.generator_us or 0),
        )
        for n, point in enumerate(points)
    ]
    return [*points[:begin], *new[begin:]]


def test_a_generator_that_takes_half_of_the_cpu_time_is_no_faster_machine() -> None:
    begin = 38  # in the middle of a fast phase
    found = without_machine(with_revision(runs_of(2.5), begin, took=0.5))
    assert spread(found) < 0.05
    assert np.median(found[:begin]) == pytest.approx(np.median(found[begin:]), rel=0.05)


def test_a_few_runs_of_a_new_revision_are_adjusted_with_those_before() -> None:
    """They are in another phase of the machine than most of the runs before."""
    begin = 49
    points = with_revision(runs_of(2.5), begin)[:56]
    assert spread([point.value for point in points]) > 0.15
    found = without_machine(points)
    assert spread(found) < 0.05
    assert np.median(found[begin:]) == pytest.approx(np.median(found[:begin]), rel=0.05)


@pytest.mark.parametrize("workload", [{"search": {"policy": "x"}}, {"sustainable_share": 0.9}])
def test_other_work_of_the_generator_changes_nothing(workload: dict[str, Any]) -> None:
    points = runs_of(2.5)
    for point in points:
        point.request["workload"] |= workload
    assert without_machine(points) == [point.value for point in points]


def test_too_few_runs_and_unknown_times_change_nothing() -> None:
    few = runs_of(2.5)[: LEAST_RUNS - 1]
    assert without_machine(few) == [point.value for point in few]
    unknown = [replace(point, generator_us=None) for point in runs_of(2.5)]
    assert without_machine(unknown) == [point.value for point in unknown]
    assert without_machine([]) == []
