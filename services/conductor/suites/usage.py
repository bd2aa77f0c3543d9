"""How busy the machine is, and with whom, from `results.resources`. Pure.

usage = Usage()
usage.add(record)
usage.of_others(now_ms)     # cores that others use now
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from schemas.protocol import MACHINE

WINDOW_MS = 10_000
MOST_SAMPLES = 10_000


@dataclass
class Usage:
    """Samples of the last WINDOW_MS, and what our own services used since `mark()`, CPU seconds."""

    own_cpu_seconds: float = 0.0
    _samples: deque[tuple[int, bool, float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES)
    )

    def add(self, record: dict[str, Any]) -> None:
        """Take in one event of `results.resources`."""
        is_machine = record["service"] == MACHINE
        sample = (record["time"], is_machine, record["cpu_seconds"], record["interval_s"])
        self._samples.append(sample)
        if not is_machine:
            self.own_cpu_seconds += record["cpu_seconds"]

    def mark(self) -> None:
        """Count what our own services use from now on."""
        self.own_cpu_seconds = 0.0

    def of_others(self, now_ms: int) -> float | None:
        """Cores that processes of others have used on average in the last WINDOW_MS; None when
        nothing is known of most of it."""
        while self._samples and self._samples[0][0] < now_ms - WINDOW_MS:
            self._samples.popleft()
        seconds = sum(interval for _t, machine, _cpu, interval in self._samples if machine)
        if seconds < WINDOW_MS / 2000:
            return None
        total = sum(cpu for _t, machine, cpu, _i in self._samples if machine)
        own = sum(cpu for _t, machine, cpu, _i in self._samples if not machine)
        return max(0.0, total - own) / seconds
