"""How sure the figures of one run are: 95 % intervals from its seconds. Pure.

Neighbouring seconds are alike, so a run of n seconds says as much as fewer independent ones would.
How many follows from the autocorrelation r of each second's share in a figure: where neighbours are
alike, a block of (1 + r) / (1 - r) seconds counts as one (Bayley, Hammersley 1946). Student's t
takes into account how few they are, and how much of the variation a few of them make. A percentile
has the bounds at which the share of outputs is as far from its level as that share is uncertain
(Woodruff 1952), on the logit scale, on which a share stays between 0 and 1.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

CONFIDENCE = 0.95
LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
FIGURES = (*LEVELS, "mean")
# Fewer independent seconds, or fewer outputs above a percentile, say too little of the rest.
LEAST_SECONDS = 10
LEAST_ABOVE = 5
MOST_ALIKE = 0.95
LEAST_FREEDOM = 3.0  # degrees of it
NORMAL_KURTOSIS = 3.0
STEPS = 2_000  # of the sum that Student's t is found by: right to a thousandth

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Seconds:
    """What a stage published in each second that had any output, in order.

    counts: outputs; sums: of their latencies; below: by figure of LEVELS, how many were not above
    that percentile of all seconds.
    """

    counts: Sequence[float]
    sums: Sequence[float]
    below: Mapping[str, Sequence[float]]

    def influences(self) -> dict[str, list[float]]:
        """By figure, how much each second moves it: its deviation from the whole, in outputs times
        milliseconds for the mean, in outputs for a percentile. They add up to zero."""
        total = sum(self.counts)
        found = {}
        for figure, values in {**self.below, "mean": self.sums}.items():
            whole = sum(values) / total
            found[figure] = [
                value - whole * count for value, count in zip(values, self.counts, strict=True)
            ]
        return found


def intervals(seconds: Seconds, outputs: Mapping[int, int]) -> dict[str, Bounds | None] | None:
    """Lower and upper bound by figure; None for a percentile above which there are too few outputs,
    and None at all where there are too few seconds.

    outputs: of all seconds, how many had each latency.
    """
    moved = seconds.influences() if sum(seconds.counts) else {}
    alike = max((autocorrelation(values) for values in moved.values()), default=0.0)
    independent = len(seconds.counts) * (1 - alike) / (1 + alike)
    if independent < LEAST_SECONDS:
        return None
    total = sum(outputs.values())
    found: dict[str, Bounds | None] = {}
    for figure, level in LEVELS.items():
        within = _half_width(moved[figure], independent) / total
        enough = total * (1 - level) >= LEAST_ABOVE
        found[figure] = _percentile_bounds(outputs, level, within) if enough else None
    mean, within = sum(seconds.sums) / total, _half_width(moved["mean"], independent) / total
    found["mean"] = (mean - within, mean + within)
    return found


def mean_bounds(values: Sequence[float]) -> Bounds | None:
    """Lower and upper bound of the mean of values that follow each other in time; None where there
    are too few."""
    count = len(values)
    mean = sum(values) / count if count else 0.0
    moved = [value - mean for value in values]
    alike = autocorrelation(moved)
    independent = count * (1 - alike) / (1 + alike)
    if independent < LEAST_SECONDS:
        return None
    within = _half_width(moved, independent) / count
    return mean - within, mean + within


def autocorrelation(values: Iterable[float]) -> float:
    """Of neighbours, without the bias that so few of them have (Kendall 1954); 0 to MOST_ALIKE.
    values: deviations, whose sum is zero."""
    values = list(values)
    squares = sum(value * value for value in values)
    if not squares:
        return 0.0
    found = sum(a * b for a, b in pairwise(values)) / squares
    return min(MOST_ALIKE, max(0.0, found + (1 + 3 * found) / len(values)))


def _half_width(moved: Sequence[float], independent: float) -> float:
    """Half the interval of the sum of what all seconds move a figure by."""
    seconds = len(moved)
    variance = sum(value * value for value in moved) / seconds
    if not variance:
        return 0.0
    fourth = sum(value**4 for value in moved) / seconds
    kurtosis = max(NORMAL_KURTOSIS, fourth / variance**2)
    # Half of what the kurtosis gives, because that of few seconds is found too small.
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
    """Quantile of Student's t for a two-sided interval. With t = √freedom · tan θ its distribution
    is that of cos θ to the power of freedom - 1, which is summed up."""
    step = math.pi / 2 / STEPS
    heights = [math.cos((place + 0.5) * step) ** (freedom - 1) for place in range(STEPS)]
    seen = list(accumulate(heights))
    wanted = confidence * seen[-1]
    place = bisect_left(seen, wanted)
    inside = 1 - (seen[place] - wanted) / heights[place]
    return math.sqrt(freedom) * math.tan((place + inside) * step)


def margin(latency: Mapping[str, Any], figure: str) -> float | None:
    """How far the farther bound of a figure of a report's latency is from it, the x of `9 ±x`; None
    where that is not known."""
    bounds = (latency.get("intervals") or {}).get(figure)
    return None if bounds is None else max(latency[figure] - bounds[0], bounds[1] - latency[figure])
