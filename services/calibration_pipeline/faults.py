"""Which outputs of a calibration pipeline are spoilt, and how: a pure function of their number.

The number of an output of ingest and parse is its input's sequence; that of a window is
`window_number`. Of every N in a row, the first is dropped, the second comes twice, the third late,
the fourth with other values, each with an N of its own; where two meet, the first named wins.
Probe records, whose sequence is negative, are never spoilt.
"""

from zlib import crc32

from schemas.pipeline import Calibration

NONE, DROP, DUPLICATE, LATE, CORRUPT = "none", "drop", "duplicate", "late", "corrupt"


def fault_of(number: int, calibration: Calibration) -> str:
    """NONE, DROP, DUPLICATE, LATE or CORRUPT."""
    if number < 0:
        return NONE
    for place, (fault, one_in) in enumerate(
        (
            (DROP, calibration.drop_one_in),
            (DUPLICATE, calibration.duplicate_one_in),
            (LATE, calibration.late_one_in),
            (CORRUPT, calibration.corrupt_one_in),
        )
    ):
        if one_in and number % one_in == place % one_in:
            return fault
    return NONE


def window_number(site: str, window_start_ms: int) -> int:
    """A number that follows from a window's address alone."""
    return crc32(f"{site} {window_start_ms}".encode())
