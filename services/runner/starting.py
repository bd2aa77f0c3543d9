"""Whether a program that failed at its start lacked processor time.

Engines give their own processes a fixed time to answer, such as the ten seconds in which a worker
must connect. On a busy machine a start exceeds it, although nothing is broken.
"""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
MOST_TRIES = 5
# Share of the time of a start in which some task of the machine waited for a core. A program that
# waits for something else, such as a broker that does not answer, leaves the cores idle.
SHORT_SHARE = 0.2
# How engines and their clients say that something did not answer in time.
TIMED_OUT = re.compile(
    r"time[ds]?[ _-]?out|fail\w* to connect back|deadline exceeded|session (has )?expired"
    r"|connection ?loss|leader ?not ?found|node ?not ?ready|no ?resource ?available"
    r"|no recent heartbeats?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Waited:
    """Seconds of a steady clock, and seconds until then in which some task waited for a core."""

    at_s: float
    waited_s: float

    def share_until(self, later: "Waited") -> float:
        """Share of the time since then in which some task waited for a core."""
        passed_s = later.at_s - self.at_s
        return (later.waited_s - self.waited_s) / passed_s if passed_s > 0 else 0.0


def waited() -> Waited:
    """Now. If the kernel does not tell how long tasks waited, as in some containers, all time
    counts while there are more runnable tasks than cores."""
    now_s = time.monotonic()
    try:
        total_us = int(PRESSURE.read_text().partition("total=")[2].split()[0])
    except (OSError, ValueError, IndexError):
        is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        return Waited(now_s, now_s if is_busy else 0.0)
    return Waited(now_s, total_us / 1e6)


def lacked_cpu(reason: str, began: Waited, ended: Waited) -> bool:
    """Whether a start that failed for this reason may succeed if it is tried again: something did
    not answer in time, and tasks waited for a core meanwhile."""
    return bool(TIMED_OUT.search(reason)) and began.share_until(ended) >= SHORT_SHARE
