"""Change points of a series: E-divisive (Matteson, James 2014). Pure.

The series is split where the energy distance between the values before and after (up to any later
place) is greatest, if that is more than chance explains; then each part again. Chance is measured
by permutation: the values of the part are shuffled, and the greatest distance over all splits is
noted each time. No distribution is assumed. In the end each change is tested once more between the
levels beside it, because others were found since (Fleming et al. 2023, "Hunter", section 3).
Distances are of logarithms: a change from 10 to 12 ms counts like one from 1000 to 1200 ms. Single
values that are far out count as much as the bounds (`CLIP` deviations from the median), so that
they do not hide a change of a tenth.

Runs that follow each other are alike on a machine that is busy for hours. Where the values of a
level depend on those before, whole blocks of them are shuffled, as long as that dependence asks for
(Politis, White 2004, for an autoregression of the first order).

Against what has no meaning a change must also be of a size that matters (`Sense`), and so must the
order of the values: of all pairs of a value before and one after, most must have risen (or fallen).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SEED = 1_306_4933
CLIP = 4.0  # scaled median absolute deviations
TO_DEVIATION = 1.4826  # of a median absolute deviation, under the normal distribution
MOST_BLOCK = 6
Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class ChangePointConfig:
    """When a change is worth a word.

    least_runs: on each side. p_value: at most, of permutations. least_ratio: the medians differ by
    at least this share of the smaller; least_step: and by at least this much, in the series' unit.
    least_order: share of pairs that must go the same way. most_runs: how far back is looked.
    """

    least_runs: int = 4
    p_value: float = 0.0025
    permutations: int = 1_199
    least_ratio: float = 0.06
    least_step: float = 2.0
    least_order: float = 0.85
    most_runs: int = 120


@dataclass(frozen=True)
class Split:
    """The value at `index` is the first of those after the change. p_value: share of shuffled
    series that had as great a distance."""

    index: int
    p_value: float


def change_points(values: Sequence[float], config: ChangePointConfig | None = None) -> list[Split]:
    """Where a series changed, in order. Values must not be negative beyond -1; they are looked at
    in the order given, which is that of time."""
    config = config or ChangePointConfig()
    data = np.asarray(values, dtype=np.float64)
    found = _changes(data, config, 1)
    block = block_length(data, found)
    return _changes(data, config, block) if found and block > 1 else found


def block_length(data: Floats, splits: Sequence[Split]) -> int:
    """How many neighbouring values are alike, by what is left of them without their levels."""
    if len(data) < 3:
        return 1
    edges = [0, *(split.index for split in splits), len(data)]
    logs = clipped(data)
    rest = np.concatenate([logs[a:b] - np.median(logs[a:b]) for a, b in pairwise(edges)])
    variance = float(rest @ rest)
    if variance == 0:
        return 1
    alike = float(rest[:-1] @ rest[1:]) / variance
    if alike <= 1.65 / np.sqrt(len(data)):  # at random one in twenty is greater
        return 1
    length = (2 * alike / (1 - alike**2)) ** (2 / 3) * len(data) ** (1 / 3)
    return int(min(MOST_BLOCK, max(2, np.ceil(length))))


def clipped(data: Floats) -> Floats:
    """Logarithms without what is far out."""
    logs = np.log1p(np.maximum(data, 0))
    middle = np.median(logs)
    reach = CLIP * TO_DEVIATION * np.median(np.abs(logs - middle))
    return np.clip(logs, middle - reach, middle + reach) if reach else logs


def _changes(data: Floats, config: ChangePointConfig, block: int) -> list[Split]:
    found: list[Split] = []
    parts = [(0, len(data))]
    while parts:
        start, end = parts.pop()
        split = _best(data[start:end], config, block)
        if split is None:
            continue
        found.append(Split(start + split.index, split.p_value))
        parts += [(start, start + split.index), (start + split.index, end)]
    return _that_matter(data, sorted(found, key=lambda one: one.index), config, block)


def order(before: Floats, after: Floats) -> float:
    """Share of pairs (one before, one after) that go the way most of them do; equals count half."""
    rises = (after[None, :] > before[:, None]).mean()
    equals = (after[None, :] == before[:, None]).mean()
    share = float(rises + equals / 2)
    return max(share, 1 - share)


def _that_matter(
    data: Floats, splits: list[Split], config: ChangePointConfig, block: int
) -> list[Split]:
    """Drop the least change as long as one does not matter, judged against its neighbours."""
    kept = list(splits)
    while kept:
        edges = [0, *(split.index for split in kept), len(data)]
        sizes = [_size(data, edges[n : n + 3], config, block) for n in range(len(kept))]
        least = int(np.argmin(sizes))
        if sizes[least] >= 1:
            return kept
        del kept[least]
    return kept


def _size(data: Floats, edges: list[int], config: ChangePointConfig, block: int) -> float:
    """How much the change at the middle one of three edges matters: at least 1 when it does and is
    no chance between the levels beside it, 0 when it may be chance."""
    start, split, end = edges
    before, after = data[start:split], data[split:end]
    low, high = sorted((float(np.median(before)), float(np.median(after))))
    by_step = (high - low) / config.least_step
    by_ratio = (high - low) / (config.least_ratio * low) if low > 0 else np.inf
    size = min(by_step, by_ratio, order(before, after) / config.least_order)
    if size < 1:
        return size
    return size if _best(data[start:end], config, block) else 0.0


def _apart(values: Floats) -> Floats:
    """How far every two values are apart."""
    logs = clipped(values)
    return np.asarray(np.abs(logs[:, None] - logs[None, :]))


def _best(values: Floats, config: ChangePointConfig, block: int) -> Split | None:
    if len(values) < 2 * config.least_runs:
        return None
    places = _places(len(values), config.least_runs)
    return _unlike_chance(_apart(values), *places, config, block)


def _unlike_chance(
    apart: Floats, splits: Places, ends: Places, config: ChangePointConfig, block: int
) -> Split | None:
    """The place of the greatest distance, unless shuffled values have as great ones too often."""
    distances = _distances(apart, splits, ends)
    best = int(np.argmax(distances))
    random = np.random.default_rng(SEED)
    allowed = int(config.p_value * (config.permutations + 1)) - 1  # the series itself counts as one
    reached = 0
    for _ in range(config.permutations):
        shuffled = _shuffled(random, len(apart), block)
        drawn = _distances(apart[np.ix_(shuffled, shuffled)], splits, ends)
        if drawn.max() >= distances[best]:
            reached += 1
            if reached > allowed:
                return None
    return Split(int(splits[best]), (reached + 1) / (config.permutations + 1))


def _shuffled(random: np.random.Generator, total: int, block: int) -> Places:
    """The order of values of which blocks were shuffled; the first block may be shorter."""
    if block == 1:
        return random.permutation(total)
    first = int(random.integers(1, block + 1))
    parts = np.split(np.arange(total), range(first, total, block))
    return np.concatenate([parts[number] for number in random.permutation(len(parts))])


def _places(total: int, least: int) -> tuple[Places, Places]:
    """Every split with every end of what comes after it, `least` values on each side. An end before
    that of the series lets a level be seen that did not last."""
    pairs = [
        (split, end)
        for end in range(2 * least, total + 1)
        for split in range(least, end - least + 1)
    ]
    splits, ends = np.array(pairs).T
    return splits, ends


def _distances(apart: Floats, splits: Places, ends: Places) -> Floats:
    """The energy distance between the values before each split and those from there to its end,
    weighted by their numbers (Matteson and James, equations 5 and 7)."""
    sums = np.zeros((len(apart) + 1, len(apart) + 1))
    np.cumsum(np.cumsum(apart, axis=0), axis=1, out=sums[1:, 1:])
    left = sums[splits, splits]
    across = sums[splits, ends] - left
    right = sums[ends, ends] - left - 2 * across
    sizes, others = splits.astype(np.float64), (ends - splits).astype(np.float64)
    between = 2 * across / (sizes * others)
    within = left / (sizes * (sizes - 1)) + right / (others * (others - 1))
    return np.asarray(sizes * others / (sizes + others) * (between - within))
