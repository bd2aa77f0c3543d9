"""Which outputs of a calibration pipeline are faulty or delayed, and how. Pure.

Outputs of one record are numbered by its sequence, all others by `address_number`. Each fault has
its own N. Of every N consecutive outputs the first is dropped, the second duplicated, the third
late, the fourth has wrong values. If faults coincide, the first named applies. Outputs of probe
records, which have a negative sequence, are never faulty.
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
    """Extra delay of an output due at this time: slow_ms during one second of every
    slow_every_s."""
    every_s = settings["slow_every_s"]
    return int(settings["slow_ms"]) if every_s and due_ms // 1000 % every_s == 0 else 0


def falling_ms(elapsed_ms: float, settings: Mapping[str, Any]) -> float:
    """The rest of the falling delay, `elapsed_ms` after the first record of a run."""
    most_ms: int = settings["falling_ms"]
    half_ms: int = 1000 * settings["falling_half_s"]
    return most_ms * 0.5 ** (max(0.0, elapsed_ms) / half_ms) if most_ms else 0.0


def address_number(*address: object) -> int:
    """A number derived from an output's address only: its keys and event time or window."""
    return crc32(" ".join(map(str, address)).encode())
