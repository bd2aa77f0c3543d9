"""The clock of this process. Passed as an argument so that tests can replace it."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """Wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


def now_us() -> int:
    """Wall clock, epoch microseconds."""
    return time.time_ns() // 1_000
