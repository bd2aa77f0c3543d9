"""Processor use by the stack and by others, from `results.resources`. Pure.

usage = Usage()
usage.add(record)
usage.of_others(now_ms)     # cores that others use now
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from schemas.protocol import COLLECTOR, MACHINE

WINDOW_MS = 10_000
MOST_SAMPLES = 10_000


@dataclass
class Usage:
    """Samples of the last WINDOW_MS, and use since `mark()`."""

    _machine_s: float = 0.0
    _own_s: float = 0.0
    _sees_the_stack: bool = False
    _samples: deque[tuple[int, str, float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES)
    )

    @property
    def own_cpu_seconds(self) -> float:
        """CPU seconds of our own services since `mark()`; of the whole machine if the collector
        does not see them, as with containers."""
        return self._own_s if self._sees_the_stack else self._machine_s

    def add(self, record: dict[str, Any]) -> None:
        """Add one event of `results.resources`."""
        service, cpu_seconds = record["service"], record["cpu_seconds"]
        self._samples.append((record["time"], service, cpu_seconds, record["interval_s"]))
        self._forget_before(record["time"] - WINDOW_MS)
        if service == MACHINE:
            self._machine_s += cpu_seconds
            return
        self._own_s += cpu_seconds
        self._sees_the_stack = self._sees_the_stack or service != COLLECTOR

    def mark(self) -> None:
        """Start counting use from now."""
        self._machine_s = self._own_s = 0.0
        self._sees_the_stack = False

    def of_others(self, now_ms: int) -> float | None:
        """Mean cores used by other processes in the last WINDOW_MS; None if most of it was not
        sampled, or if our own processes are not known."""
        self._forget_before(now_ms - WINDOW_MS)
        seconds = sum(interval for _t, name, _cpu, interval in self._samples if name == MACHINE)
        seen = {name for _t, name, _cpu, _i in self._samples}
        if seconds < WINDOW_MS / 2000 or not seen - {MACHINE, COLLECTOR}:
            return None
        total = sum(cpu for _t, name, cpu, _i in self._samples if name == MACHINE)
        own = sum(cpu for _t, name, cpu, _i in self._samples if name != MACHINE)
        return max(0.0, total - own) / seconds

    def _forget_before(self, time_ms: int) -> None:
        while self._samples and self._samples[0][0] < time_ms:
            self._samples.popleft()
