"""Intervals of one run: they contain the true value as often as stated, and are absent for too
little data."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from analysis.intervals import (
    FIGURES,
    QUARTILES,
    Seconds,
    autocorrelation,
    intervals,
    is_supported,
    margin,
    mean_bounds,
    student_t,
)
from schemas.percentiles import LEVELS, quantile
from schemas.report import Latency

pytestmark = pytest.mark.unit
PER_SECOND = 40
Latencies = npt.NDArray[np.int64]


def drawn(
    random: np.random.Generator, seconds: int, alike: float, per_second: int = PER_SECOND
) -> Latencies:
    """Latencies by second, hundreds of ms: the level of seconds is a first-order autoregressive
    process, around which its outputs vary."""
    steps = random.standard_normal(seconds) * np.sqrt(1 - alike**2)
    steps[0] = random.standard_normal()
    level = [0.0]
    for step in steps:
        level.append(alike * level[-1] + step)
    of_outputs = 0.4 * random.standard_normal((seconds, per_second))
    found = np.floor(500 * np.exp(0.3 * np.array(level[1:])[:, None] + of_outputs))
    return np.asarray(found, dtype=np.int64)


def told(rows: Sequence[Sequence[int]] | Latencies) -> dict[str, tuple[float, float] | None] | None:
    values = np.array(rows)
    outputs = Counter(values.ravel().tolist())
    below = {
        figure: (values <= (quantile(outputs, level) or 0)).sum(axis=1).tolist()
        for figure, level in LEVELS.items()
    }
    counts, sums = [values.shape[1]] * len(values), values.sum(axis=1).tolist()
    low, high = (quantile(outputs, level) or 0 for level in QUARTILES)
    held = values.clip(low, high).sum(axis=1).tolist()
    return intervals(Seconds(counts, sums, held, below), outputs)


def truth(random: np.random.Generator) -> dict[str, float]:
    values = np.sort(drawn(random, 100_000, 0.0).ravel())
    found = {figure: float(values[int(level * len(values))]) for figure, level in LEVELS.items()}
    quarter = len(values) // 4
    means = {"mean": values.mean(), "middle": values[quarter:-quarter].mean()}
    return found | {figure: float(value) for figure, value in means.items()}


@pytest.mark.parametrize(
    ("seconds", "alike", "per_second"),
    [
        (30, 0.0, 40),
        (30, 0.3, 40),
        (60, 0.0, 40),
        (60, 0.3, 40),
        (120, 0.6, 40),
        (60, 0.3, 400),  # enough for p999
    ],
)
def test_of_100_intervals_90_to_99_hold_the_truth(
    seconds: int, alike: float, per_second: int
) -> None:
    random = np.random.default_rng(20_261_123)
    true, runs = truth(random), 0
    held, known = Counter[str](), Counter[str]()
    while runs < 300:
        found = told(drawn(random, seconds, alike, per_second))
        if found is None:
            continue
        runs += 1
        for figure, bounds in found.items():
            if bounds is not None:
                known[figure] += 1
                held[figure] += bounds[0] <= true[figure] <= bounds[1]
    unknown = {"p99999"} | ({"p999"} if per_second == 40 else set())
    assert set(known) == set(FIGURES) - unknown
    shares = {figure: held[figure] / known[figure] for figure in known}
    assert all(0.90 <= share <= 0.99 for share in shares.values()), shares


def test_neighbouring_late_seconds_leave_the_intervals_of_all_figures_but_the_rarest() -> None:
    rows = []
    for n in range(30):
        odd = n % 2
        above = [9] * (70 + 10 * odd) + [20] * (28 - 24 * odd) + [30] * (2 + 14 * odd)
        rows.append([5 + 2 * odd] * 900 + above)
    for row in rows[10:17]:
        row[900:904] = [50] * 4
    found = told(rows)
    assert found is not None
    assert [figure for figure, bounds in found.items() if bounds is None] == ["p999", "p99999"]


def test_outputs_outside_the_middle_half_count_as_its_ends() -> None:
    # The quartiles are 10 and 14. With 5 as 10 and 900 as 14, a second of 10 outputs deviates by 12
    # from the mean; 12 ± 2.245 · 2 · 12 · √(20/19) · √20 / 200
    found = told([[5, 5] + [10 + n % 2 * 4] * 6 + [900, 900] for n in range(20)])
    assert found is not None
    assert found["middle"] == pytest.approx((10.764, 13.236), abs=0.001)


def test_a_low_percentile_needs_as_many_outputs_below_it_as_a_high_one_above_it() -> None:
    assert [is_supported(outputs, 0.05) for outputs in (99, 100)] == [False, True]
    assert [is_supported(outputs, 0.99999) for outputs in (499_999, 500_000)] == [False, True]


def test_what_never_varies_is_known_to_the_millisecond() -> None:
    found = told([[3] * 9 + [7]] * 30)
    assert found == {
        **{"p5": (3, 3), "p25": (3, 3), "p50": (3, 3), "p75": (3, 3), "p90": (3, 3)},
        **{"p95": (7, 7), "p99": None, "p999": None, "p99999": None},
        **{"mean": (3.4, 3.4), "middle": (3.0, 3.0)},
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
    assert intervals(Seconds([], [], [], {figure: [] for figure in LEVELS}), {}) is None


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
    latency = Latency(p50=9, p99=30, intervals={"p50": [8, 11], "p99": None})
    assert (margin(latency, "p50"), margin(latency, "p99"), margin(latency, "max")) == (
        2,
        None,
        None,
    )
    assert margin(Latency(p50=9), "p50") is None
