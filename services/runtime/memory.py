"""Memory of a process that takes in batches of many short-lived objects."""

import ctypes
import gc
from typing import Final

YOUNG_OBJECTS: Final = 200_000  # more than the messages of a batch, which die together


def expect_batches() -> None:
    """Have the collector of garbage not look at every batch of messages many times, nor at what is
    there now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def return_pages() -> None:
    """Give back the pages that glibc keeps for later, or between what is still used."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
