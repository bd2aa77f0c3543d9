"""What this process does once, before any run."""

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
