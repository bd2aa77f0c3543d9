"""Whether what a pipeline does is steady: consecutive blocks of time at one level. Pure.

Latency falls while a JVM compiles, and so does the processor time of a record. A warm-up is over
when neither goes on falling: the medians of three consecutive blocks agree, the 95th percentiles
and the processor time do not fall from block to block any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BLOCKS = 3
# How far medians of blocks may differ: the larger of both. Millisecond stamps alone differ by one.
LEVEL_MS, LEVEL_SHARE = 1.5, 0.10
# How far a 95th percentile, and processor time, may fall from the first block to the last.
TAIL_MS, TAIL_SHARE = 5.0, 0.25
CPU_SHARE = 0.15


@dataclass(frozen=True)
class Block:
    """What one stage published in one block of time: median and 95th percentile, milliseconds."""

    p50_ms: float
    p95_ms: float


def moving_latency(blocks: Sequence[Block]) -> str:
    """What of a stage's latency still moves over BLOCKS blocks, in words; empty where nothing."""
    first, last = blocks[0], blocks[-1]
    medians = [block.p50_ms for block in blocks]
    if max(medians) - min(medians) > max(LEVEL_MS, LEVEL_SHARE * min(medians)):
        return f"p50 went from {first.p50_ms:g} to {last.p50_ms:g} ms"
    tails = [block.p95_ms for block in blocks]
    fell = tails[0] - tails[-1]
    if falls(tails) and fell > max(TAIL_MS, TAIL_SHARE * tails[-1]):
        return f"p95 fell from {first.p95_ms:g} to {last.p95_ms:g} ms"
    return ""


def moving_cpu(cores: Sequence[float]) -> str:
    """Whether a pipeline's use of processors still falls over BLOCKS blocks, in words."""
    if falls(cores) and cores[0] - cores[-1] > CPU_SHARE * cores[0]:
        return f"its processor time fell from {cores[0]:.2f} to {cores[-1]:.2f} cores"
    return ""


def falls(values: Sequence[float]) -> bool:
    """Whether each value is less than the one before."""
    return all(after < before for before, after in pairwise(values))
