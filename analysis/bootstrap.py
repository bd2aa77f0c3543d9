"""Bootstrap intervals: the uncertainty of a figure from its variation. Pure.

Percentile bootstrap (Efron, Tibshirani 1993, chapter 13). Time series are resampled in whole blocks
(Künsch 1989), because neighbouring seconds are correlated. Random numbers come from a fixed seed:
the same data give the same interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from analysis.intervals import CONFIDENCE, Interval, autocorrelation

RESAMPLES = 2_000
SEED = 20_150_401
LEAST_BLOCK_S = 5
LEAST_BLOCKS = 6  # with fewer, the interval is too narrow
CHUNK_CELLS = 4_000_000  # memory limit: resamples x distinct latencies at a time
Floats: TypeAlias = NDArray[np.float64]


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
