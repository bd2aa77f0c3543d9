"""A history of real runs, replayed with and without a planted slowdown.

tests/benchmarks/changes.py records it: for each run the figures of every stage.
"""

from statistics import median

import numpy as np

from analysis.changes.finding import Change, find_changes
from analysis.changes.series import Point, Series

SEED = 20_261_125
BLOCK = 5  # consecutive runs: neighbours are alike
BEFORE = AFTER = 20  # runs
NEAR = 2  # tolerance for the place of a change
SLOWER = 1.1

History = list[dict[str, float]]  # by run, oldest first: figures by `<stage>.<metric>`


def detections(history: History, replays: int) -> int:
    """Replays in which a stage's mean latency rises by a tenth and that is found at its run."""
    random = np.random.default_rng(SEED)
    means = [name for name in history[0] if name.endswith(".mean_ms")]
    found = 0
    for number in range(replays):
        name = means[number % len(means)]
        runs = _replayed(history, random)
        slowed = [run | {name: SLOWER * run[name]} for run in runs[BEFORE:]]
        changes = _changes(runs[:BEFORE] + slowed, [name])
        found += any(abs(len(one.before) - BEFORE) <= NEAR and _rose(one) for one in changes)
    return found


def alarms(history: History, replays: int) -> int:
    """Replays without a planted change in which one is found, in any figure of any stage."""
    random = np.random.default_rng(SEED)
    return sum(bool(_changes(_replayed(history, random), [*history[0]])) for _ in range(replays))


def _replayed(history: History, random: np.random.Generator) -> History:
    """As many runs as a replay has, in blocks from random places of the history."""
    found: History = []
    while len(found) < BEFORE + AFTER:
        first = int(random.integers(0, len(history) - BLOCK + 1))
        found += history[first : first + BLOCK]
    return found


def _changes(runs: History, names: list[str]) -> list[Change]:
    return find_changes(
        Series(
            "latency at 400/s",
            "spark-realtime",
            *name.split("."),
            tuple(Point(f"run-{number:02}", run[name], {}) for number, run in enumerate(runs)),
        )
        for name in names
    )


def _rose(change: Change) -> bool:
    before, after = ([point.value for point in side] for side in (change.before, change.after))
    return median(after) > median(before)
