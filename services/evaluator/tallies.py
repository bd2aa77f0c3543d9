"""Counts that wait to be published: exact millisecond latencies, verdicts, records per second.

Counts only add up, so they may be flushed at any moment and in any number of events.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from schemas.protocol import PHASES, VERDICTS
from services.evaluator.columns import Ints, by_value, count_cells

MAX_SAMPLES = 5  # of each verdict per event


@dataclass
class StageTally:
    """Counts of one pipeline and stage. Arrays are one cell per output row."""

    latencies: dict[tuple[str, str, int], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    verdicts: dict[tuple[str, int], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    samples: dict[tuple[str, int], dict[str, list[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add_latencies(
        self, definition: str, phase: Ints, appended_ms: Ints, latency_ms: Ints
    ) -> None:
        """Count latencies by phase and second of output time."""
        for (code, second, latency), count in count_cells(phase, appended_ms // 1000, latency_ms):
            self.latencies[definition, PHASES[code], second * 1000][latency] += count

    def add_verdicts(self, verdict: str, phase: Ints, time_ms: Ints, change: int = 1) -> None:
        """Count one verdict by phase and second; `change` -1 takes an earlier one back."""
        for (code, second), count in count_cells(phase, time_ms // 1000):
            self.verdicts[PHASES[code], second * 1000][verdict] += change * count

    def add_sample(self, phase: int, time_ms: int, sample: dict[str, Any]) -> None:
        """Keep an offender for people to look at; only the first few of a second are kept."""
        kept = self.samples[PHASES[phase], time_ms - time_ms % 1000][sample["verdict"]]
        if len(kept) < MAX_SAMPLES:
            kept.append(json.dumps(sample, default=str))

    def take_latency_events(self) -> list[dict[str, Any]]:
        """Fields of `results_latency` events for all that was counted since the last call."""
        taken, self.latencies = self.latencies, defaultdict(Counter)
        return [
            {
                "definition": definition,
                "phase": phase,
                "second": second,
                "latencies_ms": sorted(counts),
                "counts": [counts[latency] for latency in sorted(counts)],
            }
            for (definition, phase, second), counts in sorted(taken.items())
        ]

    def take_verdict_events(self) -> list[dict[str, Any]]:
        """Fields of `results_verdicts` events for all that was counted since the last call."""
        taken, self.verdicts = self.verdicts, defaultdict(Counter)
        samples, self.samples = self.samples, defaultdict(lambda: defaultdict(list))
        return [
            {
                "phase": phase,
                "second": second,
                "samples": [*chain.from_iterable(samples[phase, second].values())],
                **{verdict: counts[verdict] for verdict in VERDICTS},
            }
            for (phase, second), counts in sorted(taken.items())
        ]


@dataclass
class Throughput:
    """Records and bytes of one topic per second of LogAppendTime."""

    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, appended_ms: Ints, sizes: Ints) -> None:
        """Count records and the bytes of their values."""
        if not len(appended_ms):
            return
        for second, rows in by_value(appended_ms // 1000):
            had = self.seconds.get(second * 1000, (0, 0))
            own = sizes[rows]
            self.seconds[second * 1000] = (had[0] + len(own), had[1] + int(own.sum()))

    def take(self) -> list[dict[str, Any]]:
        """`second`, `records` and `bytes` counted since the last call."""
        taken, self.seconds = self.seconds, {}
        return [
            {"second": second, "records": records, "bytes": size}
            for second, (records, size) in sorted(taken.items())
        ]
