"""Removes the effect of the machine's pace from a latency: shared cores become slower and faster
for hours. Pure.

The generator does the same work per record in all runs of a series, so its CPU time per record says
how slow the machine was. A latency grows by a power of it, because waiting for cores grows faster
than computing. The exponent is the one that leaves the smallest absolute differences between runs
near each other: few of these pairs are on two sides of a change of the pipeline. Differences of
consecutive runs alone would give too small an exponent, because errors of the CPU time dominate
them.

Another revision of Tidegauge may have another generator. If the CPU time differs more between its
first runs and those before than it did anywhere before, that is taken as the generator's.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from analysis.changes.series import Point

SAME_PROGRAM = ("tidegauge", "python")  # facts that change the generator's own CPU time
LEAST_RUNS = 12
REACH = 16  # runs
EDGE = 4  # runs on each side of a step
LEAST_STEP = 0.03  # smallest step that can be the generator's
LARGEST_EXPONENT = 4.0

Work = tuple[str, ...]


def without_machine(points: Sequence[Point]) -> list[float]:
    """The values adjusted to the median pace of the machine. Runs without the generator's CPU time
    are unchanged, and all are with fewer than LEAST_RUNS others, or if a value is not positive."""
    values = [point.value for point in points]
    paces = _paces(points)
    if len(paces) < LEAST_RUNS or min(values) <= 0:
        return values
    exponent = _exponent(
        [(math.log(values[b] / values[a]), paces[b] - paces[a]) for a, b in _near([*paces])]
    )
    usual = median(paces.values())
    for n, pace in paces.items():
        values[n] /= math.exp(exponent * (pace - usual))
    return values


def work_of(point: Point) -> Work | None:
    """What the generator's CPU time per record depends on besides the series; None if the rate
    varies within the series, because a search finds it."""
    workload = point.request["workload"]
    if workload.get("search") or workload.get("sustainable_share"):
        return None
    environment = point.request.get("environment", {})
    program = [str(environment.get(name)) for name in SAME_PROGRAM]
    return (*program, str(workload.get("transport", "kafka")))


def _paces(points: Sequence[Point]) -> dict[int, float]:
    """Logarithm of the generator's CPU time per record by index, in order, as of one generator."""
    logs: dict[Work, dict[int, float]] = {}
    for n, point in enumerate(points):
        work = work_of(point)
        if work is not None and point.generator_us:
            logs.setdefault(work, {})[n] = math.log(point.generator_us)
    found: dict[int, float] = {}
    for own in logs.values():
        first = min(own)
        before = [found[n] for n in sorted(found) if n < first]
        step = _step(before, [*own.values()])
        usual = (abs(_step(before[:n], before[n:])) for n in range(EDGE, len(before) - EDGE + 1))
        of_generator = step if abs(step) > max((LEAST_STEP, *usual)) else 0.0
        found |= {n: log - of_generator for n, log in own.items()}
    return dict(sorted(found.items()))


def _step(before: Sequence[float], after: Sequence[float]) -> float:
    """Difference between the last values before and the first after; 0 without values before."""
    return median(after[:EDGE]) - median(before[-EDGE:]) if before else 0.0


def _near(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of runs at most REACH apart."""
    for place, first in enumerate(numbers):
        for second in numbers[place + 1 : place + 1 + REACH]:
            yield first, second


def _exponent(differences: Sequence[tuple[float, float]]) -> float:
    """The k, 0 to LARGEST_EXPONENT, with the least sum of |value - k · pace| over the differences
    (value, pace): the median of the ratios, weighted by the pace."""
    ratios = sorted((value / pace, abs(pace)) for value, pace in differences if pace)
    half, seen = sum(weight for _, weight in ratios) / 2, 0.0
    for ratio, weight in ratios:
        seen += weight
        if seen >= half:
            return min(max(ratio, 0.0), LARGEST_EXPONENT)
    return 0.0
