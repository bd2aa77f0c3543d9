"""Change points of a series: where its level changed. Pure.

The series is split where the means before and after differ most, measured in standard errors
(CUSUM), if that exceeds chance; then each part again (binary segmentation). If no level lasts to
the end, one that ends earlier is searched for. Finally each change is tested again between its
adjacent levels, because others were found since (Fleming et al. 2023, "Hunter", section 3). Values
are logarithms: a change from 10 to 12 ms counts like one from 1000 to 1200 ms. Outliers are clipped
(`CLIP` deviations from a running median), so that disturbed runs do not hide a change of a tenth.

Chance is estimated from simulated series. Initially these are permutations of the values. But
consecutive runs are correlated on a machine that is busy for hours: the residuals around the levels
found give the autocorrelation, and series are simulated with it from the innovations (sieve
bootstrap: Buehlmann 1997, first order).

To be relevant, a change must also have a minimum size (`ChangePointConfig`) and order: of all pairs
of a value before and one after, most must have risen (or fallen).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SEED = 1_306_4933
CLIP = 2.0  # deviations from the running median
NEIGHBOURS = 3  # on each side, for the running median
TO_DEVIATION = 1.4826  # from a median absolute deviation, for a normal distribution
MOST_ALIKE = 0.9
AT_ONCE = 100  # simulated series at a time
Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class ChangePointConfig:
    """When a change is relevant.

    least_runs: on each side. p_value: maximum, from simulated series. least_ratio: minimum
    difference of the levels as a share of the smaller; least_step: minimum difference in the
    series' unit. least_order: minimum share of pairs that change in the same direction;
    least_deviations: minimum excess of that share over one half, in standard deviations. most_runs:
    newest runs to examine.
    """

    least_runs: int = 4
    p_value: float = 0.001
    draws: int = 1_999
    least_ratio: float = 0.06
    least_step: float = 2.0
    least_order: float = 0.75
    least_deviations: float = 3.0
    most_runs: int = 120


@dataclass(frozen=True)
class Split:
    """`index` is the first value after the change. p_value: share of simulated series with levels
    at least as far apart somewhere."""

    index: int
    p_value: float


@dataclass(frozen=True)
class Likeness:
    """Autocorrelation with the previous value (0: none), and the innovations."""

    share: float
    news: Floats


def change_points(values: Sequence[float], config: ChangePointConfig | None = None) -> list[Split]:
    """The changes of a series in time order. Negative values count as zero."""
    config = config or ChangePointConfig()
    data = np.maximum(np.asarray(values, dtype=np.float64), 0)
    logs = clipped(data)
    result = _changes(data, logs, config, None)
    return _changes(data, logs, config, likeness(logs, result)) if result else result


def clipped(data: Floats) -> Floats:
    """Logarithms, clipped to a range around the running median."""
    logs = np.log1p(data)
    if not len(logs):
        return logs
    near = (slice(max(0, n - NEIGHBOURS), n + NEIGHBOURS + 1) for n in range(len(logs)))
    middle = np.array([np.median(logs[each]) for each in near])
    apart = np.abs(logs - middle)
    # The median includes the value itself, which reduces deviations: hence the factor.
    deviation = 1.2 * (TO_DEVIATION * np.median(apart) or apart.mean())
    return np.asarray(np.clip(logs, middle - CLIP * deviation, middle + CLIP * deviation))


def likeness(logs: Floats, splits: Sequence[Split]) -> Likeness:
    """Autocorrelation and innovations of the residuals around the levels.

    Each subtracted level lowers the estimated autocorrelation by (1 + 3 share) / n (Kendall 1954),
    which is corrected.
    """
    edges = [0, *(split.index for split in splits), len(logs)]
    rest = np.concatenate([logs[a:b] - logs[a:b].mean() for a, b in pairwise(edges)])
    total, levels = len(rest), len(edges) - 1
    variance = float(rest @ rest)
    seen = float(rest[:-1] @ rest[1:]) / variance if variance else 0.0
    share = (total * seen + levels) / (total - 3 * levels) if total > 3 * levels else MOST_ALIKE
    share = min(max(share, 0.0), MOST_ALIKE)
    news = rest[1:] - share * rest[:-1]
    return Likeness(share, (news - news.mean()) * np.sqrt(total / max(1, total - levels - 1)))


def order(before: Floats, after: Floats) -> float:
    """Share of pairs (one before, one after) in the majority direction; ties count half."""
    rises = (after[None, :] > before[:, None]).mean()
    equals = (after[None, :] == before[:, None]).mean()
    share = float(rises + equals / 2)
    return max(share, 1 - share)


def _changes(
    data: Floats, logs: Floats, config: ChangePointConfig, alike: Likeness | None
) -> list[Split]:
    result: list[Split] = []
    parts = [(0, len(logs))]
    while parts:
        start, end = parts.pop()
        split = _best(logs[start:end], config, alike)
        if split is None:
            continue
        result.append(Split(start + split.index, split.p_value))
        parts += [(start, start + split.index), (start + split.index, end)]
    return _that_matter(data, logs, sorted(result, key=lambda each: each.index), config, alike)


def _that_matter(
    data: Floats,
    logs: Floats,
    splits: list[Split],
    config: ChangePointConfig,
    alike: Likeness | None,
) -> list[Split]:
    """Drop the smallest change while one is irrelevant, compared with its neighbours."""
    kept = list(splits)
    while kept:
        edges = [0, *(split.index for split in kept), len(data)]
        sizes = []
        for start, split, end in zip(edges, edges[1:], edges[2:], strict=False):
            size = _size(data[start:end], logs[start:end], split - start, config)
            is_chance = size >= 1 and _best(logs[start:end], config, alike) is None
            sizes.append(0.0 if is_chance else size)
        least = int(np.argmin(sizes))
        if sizes[least] >= 1:
            return kept
        del kept[least]
    return kept


def _size(data: Floats, logs: Floats, split: int, config: ChangePointConfig) -> float:
    """Relevance of a change at a place: at least 1 if it is relevant."""
    low, high = sorted((float(logs[:split].mean()), float(logs[split:].mean())))
    low, high = float(np.expm1(low)), float(np.expm1(high))
    by_step = (high - low) / config.least_step
    by_ratio = (high - low) / (config.least_ratio * low) if low > 0 else np.inf
    return min(by_step, by_ratio, _by_order(data[:split], data[split:], config))


def _by_order(before: Floats, after: Floats, config: ChangePointConfig) -> float:
    """The order of pairs divided by the required one, which is higher for few values, as chance
    orders these more often (Mann and Whitney 1947)."""
    pairs = len(before) * len(after)
    deviation = np.sqrt((len(before) + len(after) + 1) / (12 * pairs))
    wanted = max(config.least_order, 0.5 + config.least_deviations * deviation)
    return float(order(before, after) / wanted)


def _best(logs: Floats, config: ChangePointConfig, alike: Likeness | None) -> Split | None:
    """Where the levels are farthest apart, unless chance explains it: first for levels that last to
    the end, then for others."""
    least, total = config.least_runs, len(logs)
    if total < 2 * least:
        return None
    splits = np.arange(least, total - least + 1)
    lasting = _unlike_chance(logs, splits, np.full_like(splits, total), config, alike)
    return lasting or _unlike_chance(logs, *_places(total, least), config, alike)


def _unlike_chance(
    logs: Floats, splits: Places, ends: Places, config: ChangePointConfig, alike: Likeness | None
) -> Split | None:
    """The split with the levels farthest apart, unless too many simulated series have such
    splits."""
    distances = _distances(logs[None, :], splits, ends)[0]
    best = int(np.argmax(distances))
    random = np.random.default_rng(SEED)
    allowed = int(config.p_value * (config.draws + 1)) - 1  # the series itself counts as one
    reached = 0
    for begin in range(0, config.draws, AT_ONCE):
        count = min(AT_ONCE, config.draws - begin)
        drawn = _drawn(random, logs, count, alike)
        farthest = _distances(drawn, splits, ends).max(axis=1)
        reached += int((farthest >= distances[best]).sum())
        if reached > allowed:
            return None
    return Split(int(splits[best]), (reached + 1) / (config.draws + 1))


def _drawn(random: np.random.Generator, logs: Floats, count: int, alike: Likeness | None) -> Floats:
    """Simulated series, one per row: permutations, or new values with an autocorrelation."""
    total = len(logs)
    if alike is None:
        return random.permuted(np.tile(logs, (count, 1)), axis=1)
    result = random.choice(alike.news, (count, total))
    result[:, 0] /= np.sqrt(1 - alike.share**2)
    for n in range(1, total):
        result[:, n] += alike.share * result[:, n - 1]
    return result


def _places(total: int, least: int) -> tuple[Places, Places]:
    """Every combination of a split and an end of the part after it, `least` values on each side. An
    end before that of the series detects temporary levels."""
    splits, lengths = np.meshgrid(np.arange(least, total), np.arange(least, total))
    fits = splits + lengths <= total
    return splits[fits], (splits + lengths)[fits]


def _distances(series: Floats, splits: Places, ends: Places) -> Floats:
    """For each row, split and end: the distance of the means before and after in standard errors,
    up to a common factor."""
    sums = np.zeros((len(series), series.shape[1] + 1))
    np.cumsum(series, axis=1, out=sums[:, 1:])
    first, after = sums[:, splits], ends - splits
    apart = np.abs(first / splits - (sums[:, ends] - first) / after)
    return np.asarray(apart * np.sqrt(splits * after / ends))
