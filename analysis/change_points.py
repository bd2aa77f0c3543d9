"""Change points of a series: where its level changed. Pure.

The series is split where the means before and after are farthest apart, measured in standard errors
(CUSUM), if that is more than chance explains; then each part again (binary segmentation). Where no
level lasts to the end, one is looked for that ends before. In the end each change is tested once
more between the levels beside it, because others were found since (Fleming et al. 2023, "Hunter",
section 3). Values are logarithms: a change from 10 to 12 ms counts like one from 1000 to 1200 ms. A
value that is far from its neighbours counts as much as the bounds (`CLIP` deviations from a running
median), so that disturbed runs do not hide a change of a tenth.

Chance is measured by drawn series. At first these are the values in another order. But runs that
follow each other are alike on a machine that is busy for hours: what is left of the series without
the levels that were found tells how far each value is like the one before, and series are drawn
with that likeness from what is new in each value (sieve bootstrap: Buehlmann 1997, of the first
order).

Against what has no meaning a change must also be of a size that matters (`ChangePointConfig`), and
so must the order of the values: of all pairs of a value before and one after, most must have risen
(or fallen).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SEED = 1_306_4933
CLIP = 2.0  # deviations from the running median
NEIGHBOURS = 3  # on each side, of which the running median is
TO_DEVIATION = 1.4826  # of a median absolute deviation, under the normal distribution
MOST_ALIKE = 0.9
AT_ONCE = 100  # series that are drawn
Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class ChangePointConfig:
    """When a change is worth a word.

    least_runs: on each side. p_value: at most, of drawn series. least_ratio: the levels differ by
    at least this share of the smaller; least_step: and by at least this much, in the series' unit.
    least_order: share of pairs that must go the same way; least_deviations: and by how many
    standard deviations of that share more than half of them. most_runs: how far back is looked.
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
    """The value at `index` is the first of those after the change. p_value: share of drawn series
    whose levels were as far apart somewhere."""

    index: int
    p_value: float


@dataclass(frozen=True)
class Likeness:
    """How far each value is like the one before (0: not at all), and what is new in each."""

    share: float
    news: Floats


def change_points(values: Sequence[float], config: ChangePointConfig | None = None) -> list[Split]:
    """Where a series changed, in order. What is below zero counts as zero; the order given is that
    of time."""
    config = config or ChangePointConfig()
    data = np.maximum(np.asarray(values, dtype=np.float64), 0)
    logs = clipped(data)
    found = _changes(data, logs, config, None)
    return _changes(data, logs, config, likeness(logs, found)) if found else found


def clipped(data: Floats) -> Floats:
    """Logarithms in which no value is far from the running median."""
    logs = np.log1p(data)
    if not len(logs):
        return logs
    near = (slice(max(0, n - NEIGHBOURS), n + NEIGHBOURS + 1) for n in range(len(logs)))
    middle = np.array([np.median(logs[one]) for one in near])
    apart = np.abs(logs - middle)
    # A value is one of those whose median it is compared with: hence a little more.
    deviation = 1.2 * (TO_DEVIATION * np.median(apart) or apart.mean())
    return np.asarray(np.clip(logs, middle - CLIP * deviation, middle + CLIP * deviation))


def likeness(logs: Floats, splits: Sequence[Split]) -> Likeness:
    """By what is left of values without their levels.

    Each level that is taken out makes the rest look less alike than it is, by (1 + 3 share) / n
    (Kendall 1954); that is put right.
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
    """Share of pairs (one before, one after) that go the way most of them do; equals count half."""
    rises = (after[None, :] > before[:, None]).mean()
    equals = (after[None, :] == before[:, None]).mean()
    share = float(rises + equals / 2)
    return max(share, 1 - share)


def _changes(
    data: Floats, logs: Floats, config: ChangePointConfig, alike: Likeness | None
) -> list[Split]:
    found: list[Split] = []
    parts = [(0, len(logs))]
    while parts:
        start, end = parts.pop()
        split = _best(logs[start:end], config, alike)
        if split is None:
            continue
        found.append(Split(start + split.index, split.p_value))
        parts += [(start, start + split.index), (start + split.index, end)]
    return _that_matter(data, logs, sorted(found, key=lambda one: one.index), config, alike)


def _that_matter(
    data: Floats,
    logs: Floats,
    splits: list[Split],
    config: ChangePointConfig,
    alike: Likeness | None,
) -> list[Split]:
    """Drop the least change as long as one does not matter, judged against its neighbours."""
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
    """How much a change at a place matters: at least 1 when it does."""
    low, high = sorted((float(logs[:split].mean()), float(logs[split:].mean())))
    low, high = float(np.expm1(low)), float(np.expm1(high))
    by_step = (high - low) / config.least_step
    by_ratio = (high - low) / (config.least_ratio * low) if low > 0 else np.inf
    return min(by_step, by_ratio, _by_order(data[:split], data[split:], config))


def _by_order(before: Floats, after: Floats, config: ChangePointConfig) -> float:
    """The order of pairs against what is wanted: more of few values, as chance orders these more
    often (Mann and Whitney 1947)."""
    pairs = len(before) * len(after)
    deviation = np.sqrt((len(before) + len(after) + 1) / (12 * pairs))
    wanted = max(config.least_order, 0.5 + config.least_deviations * deviation)
    return float(order(before, after) / wanted)


def _best(logs: Floats, config: ChangePointConfig, alike: Likeness | None) -> Split | None:
    """Where the levels are farthest apart, unless chance explains it: of a level that lasts to the
    end, or else of one that did not."""
    least, total = config.least_runs, len(logs)
    if total < 2 * least:
        return None
    splits = np.arange(least, total - least + 1)
    lasting = _unlike_chance(logs, splits, np.full_like(splits, total), config, alike)
    return lasting or _unlike_chance(logs, *_places(total, least), config, alike)


def _unlike_chance(
    logs: Floats, splits: Places, ends: Places, config: ChangePointConfig, alike: Likeness | None
) -> Split | None:
    """The split with the levels farthest apart, unless drawn series have such ones too often."""
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
    """So many series, a row each: the values in another order, or new ones with a likeness."""
    total = len(logs)
    if alike is None:
        return random.permuted(np.tile(logs, (count, 1)), axis=1)
    found = random.choice(alike.news, (count, total))
    found[:, 0] /= np.sqrt(1 - alike.share**2)
    for n in range(1, total):
        found[:, n] += alike.share * found[:, n - 1]
    return found


def _places(total: int, least: int) -> tuple[Places, Places]:
    """Every split with every end of what comes after it, `least` values on each side. An end before
    that of the series lets a level be seen that did not last."""
    splits, lengths = np.meshgrid(np.arange(least, total), np.arange(least, total))
    fits = splits + lengths <= total
    return splits[fits], (splits + lengths)[fits]


def _distances(series: Floats, splits: Places, ends: Places) -> Floats:
    """Of each row, for each split and the end of what comes after it: how far the means before and
    after are apart, in standard errors but for a factor that all share."""
    sums = np.cumsum(np.pad(series, ((0, 0), (1, 0))), axis=1)
    first, after = sums[:, splits], ends - splits
    apart = np.abs(first / splits - (sums[:, ends] - first) / after)
    return np.asarray(apart * np.sqrt(splits * after / ends))
