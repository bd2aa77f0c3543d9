"""Which records of a run have a fault, and their delays (schemas/content.py). Separate because it
imports numpy, which takes longer than all other imports of a service without records."""

import numpy as np
from numpy.typing import NDArray

from schemas.content import NONE, Faults

_STEP = 0x9E3779B97F4A7C15  # splitmix64 (Steele, Lea, Flood 2014)
_DELAY_STREAM = 0xD1B54A32D192ED03


def kinds(faults: Faults, seed: int, sequences: NDArray[np.int64]) -> NDArray[np.int8]:
    """The kind of fault of each record: NONE, LATE, DUPLICATE, UNDECODABLE or IMPOSSIBLE."""
    limits = np.cumsum(faults.shares)
    place = np.searchsorted(limits, fractions(seed, sequences), side="right")
    return np.where(place == len(limits), NONE, place + 1).astype(np.int8)


def delays_us(faults: Faults, seed: int, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
    """Delay of each record if its kind is LATE, whole microseconds."""
    drawn = fractions(seed ^ _DELAY_STREAM, sequences)
    scale = faults.late_ms * 1000
    if faults.late_distribution == "fixed":
        delays = np.full(len(sequences), float(scale))
    elif faults.late_distribution == "uniform":
        delays = drawn * scale
    else:
        delays = np.minimum(-np.log1p(-drawn), 10.0) * scale
    return delays.astype(np.int64)


def fractions(seed: int, sequences: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) for each sequence: 53 bits of splitmix64 at (seed, sequence)."""
    with np.errstate(over="ignore"):
        start = np.uint64(_mix(seed & (2**64 - 1)))
        mixed = start + (sequences.astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mix(value: int) -> int:
    """splitmix64 of one number."""
    mask = 2**64 - 1
    value = (value + _STEP) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)
