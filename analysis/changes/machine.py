"""Removes the effect of the machine's pace from a latency: shared cores become slower and faster
for hours. Pure.

The generator does the same work per record in all runs of a series, so its CPU time per record says
how slow the machine was. A latency grows by a power of it, because waiting for cores grows faster
than computing. The exponent is the one that leaves the smallest absolute differences between runs
near each other: few of these pairs are on two sides of a change of the pipeline. Differences of
consecutive runs alone would give too small an exponent, because errors of the CPU time dominate
them.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from analysis.changes.series import Point

SAME_PROGRAM = ("tidegauge", "python")  # facts that change the generator's own CPU time
LEAST_RUNS = 12
REACH = 16  # runs
LARGEST_EXPONENT = 4.0

Work = tuple[str, ...]


def without_machine(points: Sequence[Point]) -> list[float]:
    """The values adjusted to the median pace of the machine. Unchanged without the generator's CPU
    time, and with fewer than LEAST_RUNS runs of the same generator."""
    values = [point.value for point in points]
    if min(values, default=0) <= 0:
        return values
    differences: list[tuple[float, float]] = []
    paces: dict[int, float] = {}
    for numbers in _of_same_work(points):
        logs = [math.log(points[n].generator_us or 1) for n in numbers]
        usual = median(logs)
        paces |= {n: log - usual for n, log in zip(numbers, logs, strict=True)}
        differences += [
            (math.log(values[b] / values[a]), paces[b] - paces[a]) for a, b in _near(numbers)
        ]
    exponent = _exponent(differences)
    for n, pace in paces.items():
        values[n] /= math.exp(exponent * pace)
    return values


def _near(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of runs at most REACH apart."""
    for place, first in enumerate(numbers):
        for second in numbers[place + 1 : place + 1 + REACH]:
            yield first, second


def work_of(point: Point) -> Work | None:
    """What the generator's CPU time per record depends on besides the series; None if the rate
    varies within the series, because a search finds it."""
    workload = point.request["workload"]
    if workload.get("search") or workload.get("sustainable_share"):
        return None
    environment = point.request.get("environment", {})
    program = [str(environment.get(name)) for name in SAME_PROGRAM]
    return (*program, str(workload.get("transport", "kafka")))


def _of_same_work(points: Sequence[Point]) -> list[list[int]]:
    """Indexes of the runs whose paces can be compared, in order."""
    found: dict[Work, list[int]] = {}
    for n, point in enumerate(points):
        work = work_of(point)
        if work is not None and point.generator_us:
            found.setdefault(work, []).append(n)
    return [numbers for numbers in found.values() if len(numbers) >= LEAST_RUNS]


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
