"""Memory of a process that takes in batches of many short-lived objects."""

import ctypes
import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
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


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)
        return None


def leave_out_pandas() -> None:
    """Let Arrow know of no pandas in this process. At its first array it imports pandas, which
    takes a second of processor time and 50 MB, and nothing here uses it."""
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([b""])
    finally:
        sys.meta_path.remove(finder)
