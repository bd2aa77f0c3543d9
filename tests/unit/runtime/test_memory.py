"""Memory usage of a process."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

THREADS = 8
# malloc_stats writes one paragraph per arena to standard error.
ALLOCATING = f"""
import ctypes, threading
from services.runtime.process import limit_arenas
{{first}}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier({THREADS})

def allocate():
    together.wait()
    for _ in range(1_000):
        libc.malloc(10_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_stats()
"""

SCRIPT = """
import sys
from services.runtime.process import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules
import pandas
"""


def test_arrow_does_without_pandas_and_others_still_find_it() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are those of glibc")
@pytest.mark.parametrize(("first", "is_limited"), [("limit_arenas()", True), ("pass", False)])
def test_threads_share_two_arenas(first: str, is_limited: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATING.format(first=first)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    arenas = done.stderr.count("Arena ")
    assert arenas == 2 if is_limited else arenas > 2


BACKEND = """
from {service} import __main__  # imports no Arrow before its allocator is selected
from services.runtime.process import let_arrow_use_malloc
let_arrow_use_malloc()
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize("service", ["services.generator", "services.store"])
def test_arrow_can_use_malloc(service: str) -> None:
    program = BACKEND.format(service=service)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "system"


CACHES = """
from services.store import __main__  # imports no chDB before its allocator is configured
from services.runtime.process import disable_thread_caches
disable_thread_caches()
import chdb
query = "SELECT extract(stats, 'opt.tcache: [a-z]+') FROM system.jemalloc_stats"
print(chdb.connect(":memory:").query(query, "TSVRaw").bytes().decode())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only chDB for Linux contains jemalloc")
def test_chdb_can_do_without_thread_caches() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CACHES], capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "opt.tcache: false"
