"""Intervals of one run: they contain the true value as often as stated, and are absent for too
little data."""

from collections import Counter

import numpy as np
import pytest

from analysis.intervals import (
    FIGURES,
    LEVELS,
    Seconds,
    autocorrelation,
    intervals,
    margin,
    mean_bounds,
    student_t,
)
from schemas.percentiles import quantile

pytestmark = pytest.mark.unit
PER_SECOND = 40


def drawn(random: np.random.Generator, seconds: int, alike: float) -> list[list[int]]:
    """Latencies by second, hundreds of ms: the level of seconds is a first-order autoregressive
    process, around which its outputs vary."""
    steps = random.standard_normal(seconds) * np.sqrt(1 - alike**2)
    steps[0] = random.standard_normal()
    level = [0.0]
    for step in steps:
        level.append(alike * level[-1] + step)
    of_outputs = 0.4 * random.standard_normal((seconds, PER_SECOND))
    rows = np.floor(500 * np.exp(0.3 * np.array(level[1:])[:, None] + of_outputs))
    return [[int(value) for value in row] for row in rows]


def told(rows: list[list[int]]) -> dict[str, tuple[float, float] | None] | None:
    outputs = Counter(value for row in rows for value in row)
    places = {figure: quantile(outputs, level) for figure, level in LEVELS.items()}
    below = {
        figure: [sum(value <= (places[figure] or 0) for value in row) for row in rows]
        for figure in LEVELS
    }
    counts, sums = [len(row) for row in rows], [sum(row) for row in rows]
    return intervals(Seconds(counts, sums, below), outputs)


def truth(random: np.random.Generator) -> dict[str, float]:
    values = np.sort(np.array(drawn(random, 100_000, 0.0)).ravel())
    found = {figure: float(values[int(level * len(values))]) for figure, level in LEVELS.items()}
    return found | {"mean": float(values.mean())}


@pytest.mark.parametrize(
    ("seconds", "alike"), [(30, 0.0), (30, 0.3), (60, 0.0), (60, 0.3), (120, 0.6)]
)
def test_of_100_intervals_90_to_99_hold_the_truth(seconds: int, alike: float) -> None:
    random = np.random.default_rng(20_261_123)
    true, held, runs = truth(random), Counter[str](), 0
    while runs < 300:
        found = told(drawn(random, seconds, alike))
        if found is None:
            continue
        runs += 1
        for figure, bounds in found.items():
            assert bounds is not None
            held[figure] += bounds[0] <= true[figure] <= bounds[1]
    assert {figure: 0.90 <= held[figure] / runs <= 0.99 for figure in FIGURES} == dict.fromkeys(
        FIGURES, True
    ), held


def test_what_never_varies_is_known_to_the_millisecond() -> None:
    found = told([[3] * 9 + [7]] * 30)
    assert found == {
        **{"p50": (3, 3), "p90": (3, 3), "p95": (7, 7)},
        **{"p99": None, "mean": (3.4, 3.4)},
    }


def test_the_mean_has_the_interval_of_students_t() -> None:
    rows = [[10 + n % 2 * 2] for n in range(20)]  # 10 and 12 alternately: deviation 1.026
    found = told(rows)
    assert found is not None
    assert found["mean"] == pytest.approx((10.485, 11.515), abs=0.001)  # 11 ± 2.245 · 1.026 / √20
    assert found["p99"] is None  # none of 20 outputs is above it


def test_the_mean_of_a_series_has_bounds_too() -> None:
    # Ten 1s and ten 3s alternately: mean 2, deviation √(20/19), error √(1/19) = 0.229; kurtosis 3
    # is assumed, so 9.5 degrees of freedom, t = 2.244.
    low, high = mean_bounds([1.0, 3.0] * 10) or (0, 0)
    assert (low, high) == (pytest.approx(2 - 0.515, abs=2e-3), pytest.approx(2 + 0.515, abs=2e-3))
    assert mean_bounds([1.0, 3.0] * 4) is None  # eight values
    assert mean_bounds([1.0] * 20 + [3.0] * 20) is None  # identical neighbours
    assert mean_bounds([]) is None
    assert mean_bounds([7.0] * 10) == (7.0, 7.0)


def test_too_few_seconds_have_no_intervals_and_those_that_are_all_alike_too() -> None:
    assert told([[5, 6, 7]] * 9) is None
    assert told([[10 + n] * PER_SECOND for n in range(60)]) is None  # it rises monotonically
    assert intervals(Seconds([], [], {figure: [] for figure in LEVELS}), {}) is None


def test_neighbours_that_are_alike_are_seen() -> None:
    assert autocorrelation([1.0, -1.0] * 20) == 0.0
    assert autocorrelation([1.0] * 20 + [-1.0] * 20) == pytest.approx(0.95)
    assert autocorrelation([0.0] * 20) == 0.0


@pytest.mark.parametrize(
    ("freedom", "confidence", "expected"),
    [
        (3, 0.95, 3.182),
        (5, 0.95, 2.571),
        (60, 0.95, 2.000),
        (4, 0.99, 4.604),
        (9, 0.999, 4.781),
        (30, 0.999, 3.646),
    ],
)
def test_students_t_is_as_in_the_tables(freedom: float, confidence: float, expected: float) -> None:
    assert student_t(freedom, confidence) == pytest.approx(expected, abs=0.001)


def test_the_margin_is_to_the_farther_bound() -> None:
    latency = {"p50": 9, "p99": 30, "intervals": {"p50": [8, 11], "p99": None}}
    assert (margin(latency, "p50"), margin(latency, "p99"), margin(latency, "max")) == (
        2,
        None,
        None,
    )
    assert margin({"p50": 9, "intervals": None}, "p50") is None
