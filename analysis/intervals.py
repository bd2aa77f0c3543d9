"""95 % intervals of the figures of one run, from its seconds; and intervals of differences between
runs. Pure.

Neighbouring seconds are correlated, so a run of n seconds contains less information than n
independent ones. The effective number follows from the autocorrelation r of each second's influence
on a figure: a block of (1 + r) / (1 - r) seconds counts as one (Bayley, Hammersley 1946). Student's
t accounts for their small number, and for a variation dominated by few of them. The bounds of a
percentile are those at which the share of outputs differs from its level by the uncertainty of that
share (Woodruff 1952), on the logit scale, which keeps shares between 0 and 1. Outputs outside the
middle half influence its mean as if they were at its ends (Tukey, McLaughlin 1963).

Other figures have a percentile bootstrap (Efron, Tibshirani 1993, chapter 13): time series are
resampled in whole blocks (Künsch 1989), because neighbouring seconds are correlated. Random numbers
come from a fixed seed: the same data give the same interval.
"""

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import comb
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.percentiles import middle
from schemas.report import Latency, Number

CONFIDENCE = 0.95
LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
FIGURES = (*LEVELS, "mean", "middle")
# The most correlated of these determines the effective number of seconds of all figures. Others can
# only lower their own.
CORRELATED = ("p50", "p90", "p95", "p99", "mean")
QUARTILES = (0.25, 0.75)  # ends of the middle half
# Fewer independent seconds, or fewer outputs above a percentile, are not representative.
LEAST_SECONDS = 10
LEAST_ABOVE = 5
MOST_ALIKE = 0.95
LEAST_FREEDOM = 3.0  # minimum degrees of freedom
NORMAL_KURTOSIS = 3.0
SAME, WORSE, BETTER, UNKNOWN = "same", "worse", "better", "unknown"  # verdicts on a difference
STEPS = 2_000  # integration steps for Student's t: accurate to a thousandth

Bounds = tuple[float, float]
RESAMPLES = 2_000
SEED = 20_150_401
LEAST_BLOCK_S = 5
LEAST_BLOCKS = 6  # with fewer, the interval is too narrow
CHUNK_CELLS = 4_000_000  # memory limit: resamples x distinct latencies at a time
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure and its bounds at a given confidence. Bounds are None if unknown, as for a single
    value."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the figure, a difference, is nonzero with that confidence."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Seconds:
    """Outputs of a stage in each second that had any, in order.

    counts: outputs; sums: of their latencies; held: the same, with each latency limited to the
    QUARTILES of all seconds; below: for each figure of LEVELS, the number of outputs not above that
    percentile of all seconds.
    """

    counts: Sequence[float]
    sums: Sequence[float]
    held: Sequence[float]
    below: Mapping[str, Sequence[float]]

    def influences(self) -> dict[str, list[float]]:
        """The influence of each second by figure: its deviation from the whole, in outputs times
        milliseconds for a mean, in outputs for a percentile. The sum is zero."""
        total = sum(self.counts)
        result = {}
        of_half = [2 * value for value in self.held]
        for figure, values in {**self.below, "mean": self.sums, "middle": of_half}.items():
            whole = sum(values) / total
            result[figure] = [
                value - whole * count for value, count in zip(values, self.counts, strict=True)
            ]
        return result


def intervals(seconds: Seconds, outputs: Mapping[int, int]) -> dict[str, Bounds | None] | None:
    """Lower and upper bound by figure; None for a figure with too few independent seconds or with
    too few outputs above it, and None altogether with too few seconds.

    outputs: number of outputs by latency, over all seconds.
    """
    total = sum(outputs.values())
    if not total:
        return None
    moved = seconds.influences()
    alike = {figure: autocorrelation(values) for figure, values in moved.items()}
    most = max(alike[figure] for figure in CORRELATED)
    means = {"mean": sum(seconds.sums) / total, "middle": middle(Counter(outputs))}
    result: dict[str, Bounds | None] = dict.fromkeys(FIGURES)
    for figure in FIGURES:
        independent = _independent(len(seconds.counts), max(most, alike[figure]))
        if independent < LEAST_SECONDS:
            continue
        within = _half_width(moved[figure], independent) / total
        if figure in means:
            result[figure] = (means[figure] - within, means[figure] + within)
        elif total * (1 - LEVELS[figure]) >= LEAST_ABOVE:
            result[figure] = _percentile_bounds(outputs, LEVELS[figure], within)
    return None if result["mean"] is None else result


def mean_bounds(values: Sequence[float]) -> Bounds | None:
    """Lower and upper bound of the mean of consecutive values; None if there are too few."""
    count = len(values)
    mean = sum(values) / count if count else 0.0
    moved = [value - mean for value in values]
    independent = _independent(count, autocorrelation(moved))
    if independent < LEAST_SECONDS:
        return None
    within = _half_width(moved, independent) / count
    return mean - within, mean + within


def run_difference(before: Sequence[float], after: Sequence[float], confidence: float) -> Interval:
    """The mean of one figure over some runs minus that over others, two or more each, with Welch's
    interval for unequal variances (Welch 1947)."""
    value = statistics.mean(after) - statistics.mean(before)
    errors = [statistics.variance(runs) / len(runs) for runs in (before, after)]
    if not sum(errors):
        return Interval(value, value, value)
    degrees = [len(runs) - 1 for runs in (before, after)]
    freedom = sum(errors) ** 2 / sum(e**2 / n for e, n in zip(errors, degrees, strict=True))
    within = student_t(freedom, confidence) * math.sqrt(sum(errors))
    return Interval(value, value - within, value + within)


def independent_difference(
    before: float, after: float, bounds: Sequence[Sequence[float]]
) -> Interval:
    """The difference of two independent figures whose intervals are known, with the same confidence
    (Zou, Donner 2008). bounds: of both."""
    (low, high), (new_low, new_high) = bounds
    value = after - before
    below = math.hypot(after - new_low, high - before)
    above = math.hypot(new_high - after, before - low)
    return Interval(value, value - below, value + above)


def autocorrelation(values: Iterable[float]) -> float:
    """Autocorrelation of neighbours, corrected for the bias of short series (Kendall 1954); 0 to
    MOST_ALIKE. values: deviations with zero sum."""
    values = list(values)
    squares = sum(value * value for value in values)
    if not squares:
        return 0.0
    result = sum(a * b for a, b in pairwise(values)) / squares
    return min(MOST_ALIKE, max(0.0, result + (1 + 3 * result) / len(values)))


def _independent(seconds: int, alike: float) -> float:
    """Effective number of seconds at an autocorrelation."""
    return seconds * (1 - alike) / (1 + alike)


def _half_width(moved: Sequence[float], independent: float) -> float:
    """Half the width of the interval of the sum of all influences."""
    seconds = len(moved)
    variance = sum(value * value for value in moved) / seconds
    if not variance:
        return 0.0
    fourth = sum(value**4 for value in moved) / seconds
    kurtosis = max(NORMAL_KURTOSIS, fourth / variance**2)
    # Half of what the kurtosis gives, because the kurtosis of few seconds is underestimated.
    freedom = max(LEAST_FREEDOM, independent / (kurtosis - 1) - 0.5)
    deviation = math.sqrt(variance * seconds / (seconds - 1) * seconds / independent * seconds)
    return student_t(freedom) * deviation


def _percentile_bounds(outputs: Mapping[int, int], level: float, within: float) -> Bounds:
    ranked = sorted(outputs)
    seen = list(accumulate(outputs[value] for value in ranked))
    apart = within / (level * (1 - level))
    odds = math.log(level / (1 - level))
    low, high = (1 / (1 + math.exp(-(odds + step))) for step in (-apart, apart))
    return _at(ranked, seen, low), _at(ranked, seen, high)


def _at(ranked: Sequence[int], seen: Sequence[int], level: float) -> int:
    """Nearest rank."""
    return ranked[bisect_left(seen, math.ceil(level * seen[-1] - 1e-9))]


def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Quantile of Student's t for a two-sided interval. With t = √freedom · tan θ its density is
    proportional to cos θ to the power of freedom - 1, which is integrated numerically."""
    step = math.pi / 2 / STEPS
    heights = [math.cos((place + 0.5) * step) ** (freedom - 1) for place in range(STEPS)]
    seen = list(accumulate(heights))
    wanted = confidence * seen[-1]
    place = bisect_left(seen, wanted)
    inside = 1 - (seen[place] - wanted) / heights[place]
    return math.sqrt(freedom) * math.tan((place + inside) * step)


def margin(latency: Latency, figure: str) -> Number | None:
    """The larger distance of a bound from a figure of a report's latency, the x of `9 ±x`; None if
    unknown."""
    bounds, value = latency.interval(figure), latency.of(figure)
    if bounds is None or value is None:
        return None
    return max(value - bounds[0], bounds[1] - value)


def median_interval(values: Sequence[float]) -> Interval:
    """The median of independent values, such as one figure of several runs. The interval ends at
    two of the values (Thompson, 1936) and has at least the confidence median_confidence, for any
    distribution."""
    ordered = sorted(values)
    value = float(median(ordered))
    if len(ordered) < 2:
        return Interval(value, None, None)
    outside = 0
    while _outside_share(outside + 1, len(ordered)) <= 1 - CONFIDENCE:
        outside += 1
    return Interval(value, float(ordered[outside]), float(ordered[-1 - outside]))


def median_confidence(values: int) -> float | None:
    """Confidence of `median_interval` for this number of values; None if it has no interval."""
    if values < 2:
        return None
    return min(CONFIDENCE, 1 - _outside_share(0, values))


def _outside_share(outside: int, values: int) -> float:
    """Probability that the median is not between two of so many values that leave `outside` values
    on each side: at most so many of the values are on one side of it."""
    return 2.0 * sum(comb(values, below) for below in range(outside + 1)) / 2.0**values


@dataclass(frozen=True)
class Histograms:
    """One histogram per second, in order. values: the distinct latencies, ascending; counts: a row
    per second, a column per value."""

    values: Floats
    counts: Floats

    def quantile(self, level: float, weights: Floats) -> Floats:
        """Nearest rank over all seconds, each weighted by `weights` (one row per resample); NaN if
        nothing is left."""
        result = []
        chunk = max(1, CHUNK_CELLS // max(1, len(self.values)))
        for start in range(0, len(weights), chunk):
            seen = np.cumsum(weights[start : start + chunk] @ self.counts, axis=1)
            total = seen[:, -1:]
            places = (seen < np.ceil(level * total - 1e-9)).sum(axis=1)
            chosen = self.values[np.minimum(places, len(self.values) - 1)]
            result.append(np.where(total[:, 0] > 0, chosen, np.nan))
        return np.concatenate(result)

    def mean(self, weights: Floats) -> Floats:
        """The mean over all seconds, each weighted by `weights`; NaN if nothing is left."""
        totals = weights @ self.counts.sum(axis=1)
        sums = weights @ (self.counts @ self.values)
        none = np.full(len(weights), np.nan)
        return np.asarray(np.divide(sums, totals, out=none, where=totals > 0))

    def figure(self, level: float | None, weights: Floats) -> Floats:
        """A percentile; None: the mean."""
        return self.mean(weights) if level is None else self.quantile(level, weights)

    def alike(self, level: float | None) -> float:
        """Autocorrelation of neighbouring seconds in their contribution to a percentile; None: to
        the mean."""
        if level is None:
            whole = self.mean(np.ones((1, len(self.counts))))[0]
            return autocorrelation((self.counts @ (self.values - whole)).tolist())
        place = self.quantile(level, np.ones((1, len(self.counts))))[0]
        below, all_of = self.counts[:, self.values <= place].sum(axis=1), self.counts.sum(axis=1)
        total = all_of.sum()
        return autocorrelation(below - below.sum() / total * all_of) if total else 0.0


def figure_difference(
    before: Histograms,
    after: Histograms,
    level: float | None,
    *,
    paired: bool,
    confidence: float = 0.99,
) -> Interval:
    """A percentile of `after`, or with None the mean, minus that of `before`, both over all their
    seconds.

    paired: both have the same seconds (two pipelines on one input), which are resampled together,
    so that common disturbances cancel. The block length follows from the autocorrelation and is at
    least LEAST_BLOCK_S.
    """
    each = np.ones((1, len(before.counts))), np.ones((1, len(after.counts)))
    value = float(after.figure(level, each[1])[0] - before.figure(level, each[0])[0])
    alike = max(before.alike(level), after.alike(level))
    block_s = max(LEAST_BLOCK_S, int(np.ceil((1 + alike) / (1 - alike))))
    if min(len(before.counts), len(after.counts)) < LEAST_BLOCKS * block_s:
        return Interval(value, None, None)
    random = np.random.default_rng(SEED)
    first = _block_weights(len(before.counts), block_s, random)
    second = first if paired else _block_weights(len(after.counts), block_s, random)
    drawn = after.figure(level, second) - before.figure(level, first)
    return Interval(value, *_bounds(drawn[~np.isnan(drawn)], confidence))


def _block_weights(seconds: int, block_s: int, random: np.random.Generator) -> Floats:
    """How often each second is drawn, per resample: circular blocks, as many as needed."""
    blocks = -(-seconds // block_s)
    starts = random.integers(0, seconds, size=(RESAMPLES, blocks))
    drawn = (starts[:, :, None] + np.arange(block_s)) % seconds
    drawn = drawn.reshape(RESAMPLES, -1)[:, :seconds]
    weights = np.zeros((RESAMPLES, seconds))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], drawn), 1)
    return weights


def _bounds(drawn: Floats, confidence: float) -> tuple[float, float]:
    share = (1 - confidence) / 2
    low, high = np.quantile(drawn, (share, 1 - share), method="nearest")
    return float(low), float(high)
