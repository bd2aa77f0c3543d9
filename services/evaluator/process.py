"""What this process does once, before any run, and between two runs."""

import ctypes
import gc

import pyarrow as pa

YOUNG_OBJECTS = 200_000  # more than the messages of a batch, which die together


def settle_in() -> None:
    """Do now what would otherwise fall into a run: pyarrow's first array imports pandas, and the
    collector of garbage would look at every batch of messages many times."""
    pa.array([b""], pa.binary())
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def forget_run() -> None:
    """Free what the run before has left: cycles, which are not looked for while a run lasts, and
    pages that glibc keeps between what is still used: some ten megabytes with each run."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
