"""Recorded blocks of real runs, replayed as interleaved runs.

`data/blocks.json.xz` contains runs of a pipeline against itself, as stored by
tests/benchmarks/interleaving.py: for each pair of adjacent blocks, the number of outputs by stage
and latency.
"""

import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analysis.interleaving import PairDifference, differences, figures_of

RECORDED = Path(__file__).with_name("data") / "blocks.json.xz"
Block = dict[str, Counter[int]]
Pair = tuple[Block, Block]
Change = Callable[[Counter[int]], Counter[int]]


def recorded() -> dict[str, list[Pair]]:
    """The pairs of all runs of each kind."""
    found: dict[str, list[Pair]] = {}
    for run in json.loads(lzma.decompress(RECORDED.read_bytes())):
        pairs = [(_block(first), _block(second)) for first, second in run["blocks"]]
        found.setdefault(run["kind"], []).extend(pairs)
    return found


def _block(said: dict[str, Any]) -> Block:
    return {
        stage: Counter({int(ms): count for ms, count in counts.items()})
        for stage, counts in said.items()
    }


def slower(random: np.random.Generator, share: float = 0.0, ms: float = 0.0) -> Change:
    """Increases every latency by a share and by milliseconds. Fractions of a millisecond are
    rounded up at random with the matching probability, as the rounding of both timestamps does."""

    def changed(outputs: Counter[int]) -> Counter[int]:
        found: Counter[int] = Counter()
        for latency_ms, count in outputs.items():
            whole, part = divmod(latency_ms * (1 + share) + ms, 1)
            up = int(random.binomial(count, part))
            found[int(whole)] += count - up
            found[int(whole) + 1] += up
        return +found

    return changed


def replayed(
    pairs: list[Pair],
    count: int,
    random: np.random.Generator,
    stage: str = "",
    change: Change | None = None,
) -> dict[str, dict[str, PairDifference]]:
    """The differences of a run with `count` random pairs. The assignment of a pair's blocks is
    random too, so that only `change`, applied to one stage of the second pipeline, can cause a
    difference."""
    values: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {}
    for place in random.integers(0, len(pairs), count):
        first, second = pairs[place]
        if random.random() < 0.5:
            first, second = second, first
        for name in first:
            of_second = second[name]
            if change is not None and name == stage:
                of_second = change(of_second)
            row = values.setdefault(name, [])
            row.append((figures_of(first[name]), figures_of(of_second)))
    return differences(values)
