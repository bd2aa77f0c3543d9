"""Interleaved comparison of recorded blocks of real runs: few differences for identical pipelines,
and nearly always the changed stage if one was slowed down.

The recorded stages take one to two milliseconds on two cores. A tenth of that is detected if the
machine was otherwise idle, and not if it was busy.
"""

import numpy as np
import pytest

from services.console.choosing import INTERLEAVED_PAIRS
from tests.unit.analysis.replays import recorded, replayed, slower

pytestmark = pytest.mark.unit
REPLAYS = 100
RECORDED = recorded()


@pytest.mark.parametrize("kind", sorted(RECORDED))
def test_runs_of_the_same_differ_in_at_most_5_of_100(kind: str) -> None:
    random = np.random.default_rng(20_261_123)
    differing = sum(
        any(one.is_real for figures in found.values() for one in figures.values())
        for found in (replayed(RECORDED[kind], INTERLEAVED_PAIRS, random) for _ in range(REPLAYS))
    )
    assert differing <= 5


@pytest.mark.parametrize("kind", sorted(RECORDED))
def test_a_stage_that_is_slower_by_2_ms_is_found_in_at_least_95_of_100(kind: str) -> None:
    random = np.random.default_rng(20_261_123)
    stages = list(RECORDED[kind][0][0])
    seen = 0
    for number in range(REPLAYS):
        stage = stages[number % len(stages)]
        change = slower(random, ms=2.0)
        found = replayed(RECORDED[kind], INTERLEAVED_PAIRS, random, stage, change)
        seen += any(one.is_real and one.value > 0 for one in found[stage].values())
    assert seen >= 95


def test_a_stage_that_is_slower_by_a_tenth_is_found_in_at_least_95_of_100() -> None:
    random = np.random.default_rng(20_261_123)
    pairs = RECORDED["kafka-streams, quiet"]
    stages = list(pairs[0][0])
    seen = 0
    for number in range(REPLAYS):
        stage = stages[number % len(stages)]
        found = replayed(pairs, INTERLEAVED_PAIRS, random, stage, slower(random, share=0.1))
        seen += any(one.is_real and one.value > 0 for one in found[stage].values())
    assert seen >= 95
