"""What a process sets up before anything else: the clock, a graceful stop, memory. Standard library
only: a pipeline's own process imports it.

The clock is passed as an argument so that tests can replace it. SIGTERM and SIGINT set an event
that loops check.
"""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Final

Clock = Callable[[], int]
YOUNG_OBJECTS: Final = 200_000  # more than the messages of one batch
M_ARENA_MAX: Final = -8  # of <malloc.h>
M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 128 * 1024  # glibc's initial threshold
ARENAS: Final = 2


def now_ms() -> int:
    """Wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


def now_us() -> int:
    """Wall clock, epoch microseconds."""
    return time.time_ns() // 1_000


def stop_on_signals() -> threading.Event:
    """An event that is set at the first SIGTERM or SIGINT. Call from the main thread."""
    stop = threading.Event()

    def request_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)
    return stop


def warm_up_process() -> None:
    """Avoid delays during a run: Arrow's first array searches for pandas, and the garbage collector
    would scan every batch of messages many times. Limit the arenas of malloc."""
    limit_arenas()
    leave_out_pandas()
    expect_batches()


def release_memory() -> None:
    """Free the memory of a finished run: reference cycles, which are not collected during a run,
    and pages that Arrow, if it is in use, and glibc retain."""
    gc.collect()
    if "pyarrow" in sys.modules:
        return_arrow_memory()
    else:
        return_pages()


def let_arrow_use_malloc() -> None:
    """Let Arrow allocate with malloc. Call before the first import of Arrow: `pa.set_memory_pool`
    does not change the pool that its compute functions use.

    Arrow's own allocator, mimalloc, is faster, but keeps pages for threads that are idle or have
    ended, and nothing returns them: with batches of changing sizes it grew for hours.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def disable_thread_caches() -> None:
    """Disable the thread caches of jemalloc in chDB. Call before the first import of chDB. A purge
    does not return the caches of idle threads."""
    os.environ.setdefault("JE_MALLOC_CONF", "tcache:false")


def return_arrow_memory() -> None:
    """Return free pages that Arrow and glibc keep to the operating system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    return_pages()


def limit_arenas() -> None:
    """Limit the arenas of glibc's malloc, which keep pages that `malloc_trim` cannot return. By
    default there are up to eight per core, and every Kafka client has threads that use others. Does
    nothing with another C library."""
    _set_malloc_option(M_ARENA_MAX, ARENAS)


def map_large_blocks() -> None:
    """Let glibc's malloc map every large block on its own, so that freeing it returns its pages.
    Otherwise the first such block that is freed raises the threshold, up to 32 MB, and later ones
    fragment the heap. This costs page faults. Does nothing with another C library."""
    _set_malloc_option(M_MMAP_THRESHOLD, LARGE_BYTES)


def expect_batches() -> None:
    """Tune garbage collection for batches: fewer young collections, and no scans of the objects
    that exist now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def return_pages() -> None:
    """Return free pages that glibc keeps to the operating system."""
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
    """Prevent Arrow from importing pandas, which nothing here uses. It does so at its first array,
    which takes a second of processor time and 50 MB."""
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([b""])
    finally:
        sys.meta_path.remove(finder)


def _set_malloc_option(name: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(name, value)
