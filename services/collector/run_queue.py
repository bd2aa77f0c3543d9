"""Time that the threads of a process were runnable but waited for a processor.

Linux counts it for each thread, in nanoseconds since the thread began: the second number of
/proc/PID/task/TID/schedstat. Waits after a thread's last read are lost.
"""

import os
from pathlib import Path

NANOSECOND_S = 1e-9
MOST_THREADS = 4096  # threads read per process
LINE_BYTES = 128
WAITED = 1  # index in schedstat: processor time, wait time, time slices


class RunQueue:
    """Sums the wait times of the threads of one process."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._tasks = str(proc / str(pid) / "task")  # str: a Path costs as much as the read
        self._waited_ns: dict[str, int] = {}
        self._total_ns = 0

    def waited_s(self) -> float | None:
        """Seconds waited since the process began, including ended threads that were read before;
        None if the system does not report it."""
        try:
            threads = os.listdir(self._tasks)[:MOST_THREADS]
        except OSError:
            return None
        read = ((thread, _waited_ns(f"{self._tasks}/{thread}/schedstat")) for thread in threads)
        now = {thread: waited for thread, waited in read if waited is not None}
        if not now:
            return None
        for thread, waited_ns in now.items():
            before = self._waited_ns.get(thread, 0)
            self._total_ns += waited_ns - before if waited_ns >= before else waited_ns
        self._waited_ns = now
        return self._total_ns * NANOSECOND_S


def _waited_ns(path: str) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None  # the thread has ended, or the system has no counters
    try:
        numbers = os.read(file, LINE_BYTES).split()
    except OSError:
        return None
    finally:
        os.close(file)
    return int(numbers[WAITED]) if len(numbers) > WAITED else None
