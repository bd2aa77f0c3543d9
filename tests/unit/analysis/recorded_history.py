"""A history of real runs, replayed with and without a planted slowdown.

tests/benchmarks/changes.py records it: for each run the figures of every stage, and the CPU time of
the generator per record.
"""

from statistics import median
from typing import Any

import numpy as np

from analysis.changes.finding import FoundChange, find_changes
from analysis.changes.series import TYPICAL, Point, Series
from tests.unit.requests import a_request

SEED = 20_261_125
BLOCK = 5  # consecutive runs: neighbours are alike
NEAR = 5  # tolerance for the place of a change, runs
SLOWER = 1.1
REQUEST = a_request().model_dump(mode="json")

# By run, oldest first: `figures` by `<stage>.<metric>`, and `generator_us`.
History = list[dict[str, Any]]


def detections(history: History, replays: int, each_side: int) -> int:
    """Replays in which the typical latency of a stage rises by a tenth and that is found at its
    run. each_side: runs before and after."""
    random = np.random.default_rng(SEED)
    names = [name for name in history[0]["figures"] if name.endswith(f".{TYPICAL}")]
    found = 0
    for number in range(replays):
        runs = _replayed(history, random, 2 * each_side)
        changes = _changes(runs, [names[number % len(names)]], slower_from=each_side)
        found += any(abs(len(one.before) - each_side) <= NEAR and _rose(one) for one in changes)
    return found


def alarms(history: History, replays: int, each_side: int) -> int:
    """Replays without a planted change in which one is found, in any figure of any stage."""
    random = np.random.default_rng(SEED)
    names = [*history[0]["figures"]]
    return sum(
        bool(_changes(_replayed(history, random, 2 * each_side), names)) for _ in range(replays)
    )


def _replayed(history: History, random: np.random.Generator, runs: int) -> History:
    """Some runs, in blocks from random places of the history."""
    found: History = []
    while len(found) < runs:
        first = int(random.integers(0, len(history) - BLOCK + 1))
        found += history[first : first + BLOCK]
    return found[:runs]


def _changes(runs: History, names: list[str], slower_from: int | None = None) -> list[FoundChange]:
    """The changes of some figures, which take a tenth longer from one run on."""
    begin = len(runs) if slower_from is None else slower_from
    return find_changes(
        Series(
            "latency at 400/s",
            "spark-realtime",
            *name.split("."),
            tuple(
                Point(
                    f"run-{number:02}",
                    run["figures"][name] * (SLOWER if number >= begin else 1),
                    REQUEST,
                    generator_us=run["generator_us"],
                )
                for number, run in enumerate(runs)
            ),
        )
        for name in names
    )


def _rose(change: FoundChange) -> bool:
    before, after = ([point.value for point in side] for side in (change.before, change.after))
    return median(after) > median(before)
