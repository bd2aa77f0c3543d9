"""Whether the figures of a pipeline are steady. Pure.

Latency and processor time per record fall while a JVM compiles. There are two tests on the values
of a figure in single seconds:

- `agree`: are three consecutive blocks at one level? A warm-up may end when they are.
- `judge`: did the figure change in a longer time, such as the measured phase? It did if the median
  of the last third differs from that of the first by more than a relevant bound, and the
  Mann-Kendall test finds a trend. A difference without a trend is noise.

The slope of a series is the Theil–Sen estimator with Sen's interval: the median of the slopes
between all pairs of points, which is robust to a single pause. Its interval lies between two of
these slopes, by Kendall's statistic (P. K. Sen, 1968).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import sqrt
from statistics import median

Z_95 = 1.96
MOST_POINTS = 600  # 180,000 pairs
THIRD = 3
BLOCKS = 3
LEAST_VALUES = 6  # fewer cannot show a trend
ENOUGH_VALUES = 20  # enough to detect a relevant trend
MOST_VALUES = 60  # more are first reduced to medians of neighbours
CHANCE = 0.02  # false positive rate for one figure; half of it below ENOUGH_VALUES
# Share of a pipeline's processor time below which compilers have done most of their work; one large
# method late in a run takes a tenth of some seconds.
JIT_SHARE = 0.20
Points = Mapping[int, float]
"""Values by second."""


@dataclass(frozen=True)
class Slope:
    """Units of the values per second; low to high at 95 %. 0 for fewer than two points."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0


def slope(values: Mapping[int, float]) -> Slope:
    """The slope of values by second; of more than MOST_POINTS, that of their medians."""
    points = reduced(values)
    pairs = combinations(sorted(points.items()), 2)
    slopes = sorted((late - early) / (then - now) for (now, early), (then, late) in pairs)
    if not slopes:
        return Slope()
    count, pair_count = len(points), len(slopes)
    spread = Z_95 * sqrt(spread_of_pairs(count))
    low = max(0, round((pair_count - spread) / 2) - 1)
    high = min(pair_count - 1, round((pair_count + spread) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def reduced(values: Mapping[int, float]) -> dict[int, float]:
    """At most MOST_POINTS medians of neighbouring seconds, each at the middle one."""
    ordered, size = sorted(values.items()), max(1, -(-len(values) // MOST_POINTS))
    stretches = (ordered[at : at + size] for at in range(0, len(ordered), size))
    return {
        stretch[len(stretch) // 2][0]: median(value for _, value in stretch)
        for stretch in stretches
    }


def spread_of_pairs(count: int) -> float:
    """Variance of Kendall's statistic for `count` values without ties."""
    return count * (count - 1) * (2 * count + 5) / 18


def risen(values: Mapping[int, float]) -> tuple[float, float]:
    """The median of the first third of the seconds, and the increase to that of the last third."""
    ordered = [values[second] for second in sorted(values)]
    part = max(1, len(ordered) // THIRD)
    first = median(ordered[:part])
    return first, median(ordered[-part:]) - first


@dataclass(frozen=True)
class SteadyFigure:
    """A figure, and what counts as a change: more than `least` and more than `share` of the lower
    value.

    only_falls: blocks agree unless it falls in each of them, because its single blocks vary widely.
    """

    name: str
    unit: str
    least: float
    share: float
    only_falls: bool = False

    def differ(self, level: float, other: float) -> bool:
        """Whether two levels differ by a relevant amount."""
        return abs(level - other) > max(self.least, self.share * min(level, other))


# The rounding of timestamps alone makes a difference of one.
P50 = SteadyFigure("p50", "ms", 1.5, 0.10)
P95 = SteadyFigure("p95", "ms", 5.0, 0.25, only_falls=True)
COST = SteadyFigure("CPU time", "core-seconds per million records", 0.0, 0.15, only_falls=True)


@dataclass(frozen=True)
class Movement:
    """A change of a figure from one level to another within some seconds."""

    figure: SteadyFigure
    before: float
    after: float
    seconds: float

    @property
    def falls(self) -> bool:
        """Whether it decreased."""
        return self.after < self.before

    def follows(self, factor: float) -> bool:
        """Whether something else, which changed by this factor meanwhile, changed in the same
        direction and no less, except for an irrelevant amount."""
        explained = self.before * factor
        is_same_way = (factor < 1) is self.falls and factor != 1
        goes_further = (self.after < explained) is self.falls
        return is_same_way and not (goes_further and self.figure.differ(explained, self.after))

    @property
    def size(self) -> float:
        """Ratio of the levels."""
        low, high = sorted((self.before, self.after))
        return high / low if low > 0 else math.inf

    @property
    def sentence(self) -> str:
        """`p50 fell by 14 ms in 12 s, from 20 to 6 ms`."""
        figure = self.figure
        by = f"{abs(self.after - self.before):.4g}"
        times = f"in {self.seconds:.0f} s, from {self.before:.4g} to {self.after:.4g} {figure.unit}"
        verb = "fell" if self.falls else "rose"
        unit = f" {figure.unit}" if figure.unit == "ms" else ""
        return f"{figure.name} {verb} by {by}{unit} {times}"

    def still(self, whose: str) -> str:
        """`p50 of join still falls, 20 → 6 ms`."""
        verb = "falls" if self.falls else "rises"
        levels = f"{self.before:.4g} → {self.after:.4g} {self.figure.unit}"
        return f"{self.figure.name} of {whose} still {verb}, {levels}"


@dataclass(frozen=True)
class SteadyVerdict:
    """moved: None if it did not change. certain: whether there were enough values; if not, it may
    have changed this much. of_machine: a change that the performance of the machine explains."""

    moved: Movement | None = None
    certain: bool = True
    of_machine: Movement | None = None


UNKNOWN = SteadyVerdict(certain=False)


def agree(points: Points, end_s: int, block_s: int, figure: SteadyFigure) -> SteadyVerdict:
    """Whether the last BLOCKS blocks before a second are at one level."""
    begin_s = end_s - BLOCKS * block_s
    levels = levels_of(points, begin_s, end_s, block_s)
    if len(levels) < BLOCKS:
        return UNKNOWN
    last = levels[-1]
    if figure.only_falls:
        falls = all(after < before for before, after in pairwise(levels))
        moved = falls and figure.differ(levels[0], last)
        return SteadyVerdict(
            Movement(figure, levels[0], last, (BLOCKS - 1) * block_s) if moved else None
        )
    if not figure.differ(min(levels), max(levels)):
        return SteadyVerdict()
    place = max(range(BLOCKS), key=lambda number: abs(levels[number] - last))
    return SteadyVerdict(Movement(figure, levels[place], last, (BLOCKS - 1 - place) * block_s))


def judge(
    points: Points,
    begin_s: int,
    end_s: int,
    figure: SteadyFigure,
    *,
    cycle_s: int = 1,
    last_s: int = 0,
) -> SteadyVerdict:
    """Whether a figure changed between two seconds. cycle_s: period of the load; whole periods are
    compared. last_s: length of the last part, if not a third."""
    length_s = end_s - begin_s
    width_s = cycle_s * max(1, math.ceil(length_s / (MOST_VALUES * cycle_s)))
    values = levels_of(points, begin_s, end_s, width_s)
    third_s = max(width_s, length_s // (3 * cycle_s) * cycle_s)
    first = [value for at, value in points.items() if begin_s <= at < begin_s + third_s]
    last_s = last_s or third_s
    last = [value for at, value in points.items() if end_s - last_s <= at < end_s]
    if len(values) < LEAST_VALUES or not first or not last:
        return UNKNOWN
    before, after = median(first), median(last)
    if not figure.differ(before, after):
        return SteadyVerdict()
    moved = Movement(figure, before, after, length_s - (third_s + last_s) / 2)
    is_enough = len(values) >= ENOUGH_VALUES
    if chance_of_trend(values) < (CHANCE if is_enough else CHANCE / 2):
        return SteadyVerdict(moved)
    return SteadyVerdict() if is_enough else SteadyVerdict(moved, certain=False)


def together(short: SteadyVerdict, longer: SteadyVerdict, before: SteadyVerdict) -> SteadyVerdict:
    """Combine judgements for a short time. If it is uncertain, the figure changed if a longer time
    with the same end has a trend in the same direction; with too few values, the blocks before
    decide."""
    if short.certain:
        return short
    if short.moved is None:
        return before
    goes_on = longer.certain and longer.moved and longer.moved.falls == short.moved.falls
    return SteadyVerdict(short.moved if goes_on else None)


def levels_of(points: Points, begin_s: int, end_s: int, width_s: int) -> list[float]:
    """The median of each part of a time with values, in order."""
    parts = defaultdict(list)
    for at, value in points.items():
        if begin_s <= at < end_s:
            parts[(at - begin_s) // width_s].append(value)
    return [median(parts[number]) for number in sorted(parts)]


def chance_of_trend(values: Sequence[float]) -> float:
    """Probability of such a trend in values without one, by the Mann-Kendall test: its normal
    approximation with ties."""
    rising = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    n = len(values)
    variance = spread_of_pairs(n) - sum(map(spread_of_pairs, Counter(values).values()))
    if not rising or variance <= 0:
        return 1.0
    return math.erfc((abs(rising) - 1) / math.sqrt(variance) / math.sqrt(2))


def share_of_compilers(jit_s: Points, cpu_s: Points, begin_s: int, end_s: int) -> float | None:
    """Share of a pipeline's processor time used by its compilers; None without samples. At most 1:
    where the system does not count the time of threads, it is the duration of compilations."""
    compiled = [value for at, value in jit_s.items() if begin_s <= at < end_s]
    used = sum(value for at, value in cpu_s.items() if begin_s <= at < end_s)
    return min(1.0, sum(compiled) / used) if compiled and used else None
