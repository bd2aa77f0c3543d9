"""Whether what a pipeline does is steady: do its figures still move? Pure.

Latency falls while a JVM compiles, and so does the processor time of a record. Two questions are
asked of the values that a figure had in single seconds:

- `agree`: are three consecutive blocks at one level? A warm-up may end when they are.
- `judge`: did the figure move in a longer time, such as the measured phase? It did where the median
  of the last third differs from that of the first by more than a bound that matters, and the rank
  test of Mann and Kendall finds a trend. A difference without a trend is noise.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from analysis.slope import spread_of_pairs

BLOCKS = 3
LEAST_VALUES = 6  # with fewer a trend cannot be told from chance
ENOUGH_VALUES = 20  # in which a trend that matters would have been found
MOST_VALUES = 60  # more are put together first, each the median of as many neighbours
CHANCE = 0.02  # of a trend where there is none, for one figure; of fewer values than enough half
# Of its processor time a pipeline's compilers take less when they have done most of their work;
# one large method late in a run takes a tenth of some seconds.
JIT_SHARE = 0.20

Points = Mapping[int, float]
"""Values by second."""


@dataclass(frozen=True)
class Figure:
    """What may move. It does by more than `least` and more than `share` of the lower value.

    only_falls: blocks agree as long as it does not fall in each of them, because single blocks of
    it differ much.
    """

    name: str
    unit: str
    least: float
    share: float
    only_falls: bool = False

    def differ(self, one: float, other: float) -> bool:
        """Whether two levels differ by so much that it matters."""
        return abs(one - other) > max(self.least, self.share * min(one, other))


# Millisecond stamps alone differ by one.
P50 = Figure("p50", "ms", 1.5, 0.10)
P95 = Figure("p95", "ms", 5.0, 0.25, only_falls=True)
COST = Figure("processor time", "core-seconds per million records", 0.0, 0.15, only_falls=True)


@dataclass(frozen=True)
class Movement:
    """A figure went from one level to another within so many seconds."""

    figure: Figure
    before: float
    after: float
    seconds: float

    @property
    def falls(self) -> bool:
        """Whether it went down."""
        return self.after < self.before

    @property
    def size(self) -> float:
        """By what factor."""
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
class Judged:
    """moved: None where it did not. certain: whether the values were enough to tell; where they
    were not, it may have moved so."""

    moved: Movement | None = None
    certain: bool = True


UNKNOWN = Judged(certain=False)


def agree(points: Points, end_s: int, block_s: int, figure: Figure) -> Judged:
    """Whether the last BLOCKS blocks before a second are at one level."""
    begin_s = end_s - BLOCKS * block_s
    levels = levels_of(points, begin_s, end_s, block_s)
    if len(levels) < BLOCKS:
        return UNKNOWN
    last = levels[-1]
    if figure.only_falls:
        falls = all(after < before for before, after in pairwise(levels))
        moved = falls and figure.differ(levels[0], last)
        return Judged(Movement(figure, levels[0], last, (BLOCKS - 1) * block_s) if moved else None)
    if not figure.differ(min(levels), max(levels)):
        return Judged()
    place = max(range(BLOCKS), key=lambda number: abs(levels[number] - last))
    return Judged(Movement(figure, levels[place], last, (BLOCKS - 1 - place) * block_s))


def judge(
    points: Points, begin_s: int, end_s: int, figure: Figure, *, cycle_s: int = 1, last_s: int = 0
) -> Judged:
    """Whether a figure moved between two seconds. cycle_s: what repeats itself, such as the period
    of a load, is compared as a whole. last_s: length of the last part, where it is not a third."""
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
        return Judged()
    moved = Movement(figure, before, after, length_s - (third_s + last_s) / 2)
    is_enough = len(values) >= ENOUGH_VALUES
    if chance_of_trend(values) < (CHANCE if is_enough else CHANCE / 2):
        return Judged(moved)
    return Judged() if is_enough else Judged(moved, certain=False)


def together(short: Judged, longer: Judged, before: Judged) -> Judged:
    """What is to be said of a short time. Where it leaves open whether a figure moved, it did if a
    longer time, which ends with it, has a trend of the same direction; where it has too few values,
    the blocks before it tell."""
    if short.certain:
        return short
    if short.moved is None:
        return before
    goes_on = longer.certain and longer.moved and longer.moved.falls == short.moved.falls
    return Judged(short.moved if goes_on else None)


def levels_of(points: Points, begin_s: int, end_s: int, width_s: int) -> list[float]:
    """The median of each part of a time that has values, in order."""
    parts = defaultdict(list)
    for at, value in points.items():
        if begin_s <= at < end_s:
            parts[(at - begin_s) // width_s].append(value)
    return [median(parts[number]) for number in sorted(parts)]


def chance_of_trend(values: Sequence[float]) -> float:
    """How likely values without a trend show one like this, by the test of Mann and Kendall: its
    normal approximation with ties."""
    rising = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    n = len(values)
    variance = spread_of_pairs(n) - sum(map(spread_of_pairs, Counter(values).values()))
    if not rising or variance <= 0:
        return 1.0
    return math.erfc((abs(rising) - 1) / math.sqrt(variance) / math.sqrt(2))


def share_of_compilers(jit_s: Points, cpu_s: Points, begin_s: int, end_s: int) -> float | None:
    """What share of a pipeline's processor time its compilers worked; None where it has none.

    HotSpot counts the time that compilations last, waiting for a core included, so where cores are
    few it counts more than was used: the share is at most 1.
    """
    compiled = [value for at, value in jit_s.items() if begin_s <= at < end_s]
    used = sum(value for at, value in cpu_s.items() if begin_s <= at < end_s)
    return min(1.0, sum(compiled) / used) if compiled and used else None
