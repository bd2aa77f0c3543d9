"""Which outputs of a calibration pipeline are spoilt or delayed, and how. Pure.

The number of an output of one record is its sequence; that of every other output is
`address_number`. Of every N in a row, the first is dropped, the second comes twice, the third late,
the fourth with other values, each with an N of its own; where two meet, the first named wins.
Outputs of probe records, whose sequence is negative, are never spoilt.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

NONE, DROP, DUPLICATE, LATE, CORRUPT = "none", "drop", "duplicate", "late", "corrupt"
FAULTS = (DROP, DUPLICATE, LATE, CORRUPT)


def fault_of(number: int, settings: Mapping[str, Any]) -> str:
    """NONE, DROP, DUPLICATE, LATE or CORRUPT. settings: of the pipeline, `<fault>_one_in`."""
    if number < 0:
        return NONE
    for place, fault in enumerate(FAULTS):
        one_in = settings[f"{fault}_one_in"]
        if one_in and number % one_in == place % one_in:
            return fault
    return NONE


def slowness_ms(due_ms: int, settings: Mapping[str, Any]) -> int:
    """How much later an output comes that is due then: in one second of slow_every_s, slow_ms."""
    every_s = settings["slow_every_s"]
    return int(settings["slow_ms"]) if every_s and due_ms // 1000 % every_s == 0 else 0


def falling_ms(elapsed_ms: float, settings: Mapping[str, Any]) -> float:
    """What is left of the delay that falls, so long after the first record of a run."""
    most_ms: int = settings["falling_ms"]
    half_ms: int = 1000 * settings["falling_half_s"]
    return most_ms * 0.5 ** (max(0.0, elapsed_ms) / half_ms) if most_ms else 0.0


def address_number(*address: object) -> int:
    """A number that follows from an output's address alone: its keys and event time or window."""
    return crc32(" ".join(map(str, address)).encode())
