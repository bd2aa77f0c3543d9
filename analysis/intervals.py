"""95 % intervals of the figures of one run, from its seconds; and intervals of differences between
runs. Pure.

Neighbouring seconds are correlated, so a run of n seconds contains less information than n
independent ones. The effective number follows from the autocorrelation r of each second's influence
on a figure: a block of (1 + r) / (1 - r) seconds counts as one (Bayley, Hammersley 1946). Student's
t accounts for their small number, and for a variation dominated by few of them. The bounds of a
percentile are those at which the share of outputs differs from its level by the uncertainty of that
share (Woodruff 1952), on the logit scale, which keeps shares between 0 and 1. Outputs outside the
middle half influence its mean as if they were at its ends (Tukey, McLaughlin 1963).
"""

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from schemas.percentiles import LEVELS, middle
from schemas.report import Latency, Number

CONFIDENCE = 0.95
FIGURES = (*LEVELS, "mean", "middle")
# The most correlated of these determines the effective number of seconds of all figures. Others can
# only lower their own.
CORRELATED = ("p50", "p90", "p95", "p99", "mean")
QUARTILES = (0.25, 0.75)  # ends of the middle half
# Fewer independent seconds, or fewer outputs above a percentile (below one under the median), are
# not representative.
LEAST_SECONDS = 10
LEAST_BEYOND = 5
ROUNDING = 1e-6  # of 1 - level, times the outputs of any run
MOST_ALIKE = 0.95
LEAST_FREEDOM = 3.0  # minimum degrees of freedom
NORMAL_KURTOSIS = 3.0
SAME, WORSE, BETTER, UNKNOWN = "same", "worse", "better", "unknown"  # verdicts on a difference
STEPS = 2_000  # integration steps for Student's t: accurate to a thousandth
_STEP = math.pi / 2 / STEPS
_COSINES = tuple(math.cos((place + 0.5) * _STEP) for place in range(STEPS))

Bounds = tuple[float, float]


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
    too few outputs beyond it, and None altogether with too few seconds.

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
        elif is_supported(total, LEVELS[figure]):
            result[figure] = _percentile_bounds(outputs, LEVELS[figure], within)
    return None if result["mean"] is None else result


def is_supported(outputs: int, level: float) -> bool:
    """Whether enough outputs are above a percentile, or below one under the median."""
    return outputs * min(level, 1 - level) >= LEAST_BEYOND - ROUNDING


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
    heights = [cosine ** (freedom - 1) for cosine in _COSINES]
    seen = list(accumulate(heights))
    wanted = confidence * seen[-1]
    place = bisect_left(seen, wanted)
    inside = 1 - (seen[place] - wanted) / heights[place]
    return math.sqrt(freedom) * math.tan((place + inside) * _STEP)


def margin(latency: Latency, figure: str) -> Number | None:
    """The larger distance of a bound from a figure of a report's latency, the x of `9 ±x`; None if
    unknown."""
    bounds, value = latency.interval(figure), latency.of(figure)
    if bounds is None or value is None:
        return None
    return max(value - bounds[0], bounds[1] - value)
