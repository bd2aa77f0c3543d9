"""Single pairs that wait to be published: an output, its verdict and the times of its inputs.

A pair is known by where its output is: `places` packs partition and offset into one number.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from schemas.protocol import PHASES
from services.evaluator.columns import Ints
from services.evaluator.outputs import Outputs
from services.evaluator.stages import Expected

MAX_PAIRS_PER_EVENT = 2_000
OFFSET_BITS = 48
_OFFSETS = (1 << OFFSET_BITS) - 1
Column = np.ndarray[Any, Any]


def places(partition: Ints, offset: Ints) -> Ints:
    """One number per record of a topic."""
    packed: Ints = (partition << OFFSET_BITS) | offset
    return packed


class PairLog:
    """Pairs of one pipeline and stage, in the order in which they were judged."""

    def __init__(self) -> None:
        self._parts: list[tuple[Column, ...]] = []

    def add(self, rows: Outputs, expected: Expected, phase: Ints, verdict: Column) -> None:
        """Keep the pairs of judged outputs; none where their places are not known."""
        if rows.places is not None:
            times = (expected.latest_ms, expected.mean_input_ms(), expected.scheduled_us)
            self._parts.append((phase, verdict, rows.places, rows.appended_ms, *times))

    def take_events(self) -> Iterator[dict[str, Any]]:
        """Fields of `results_pairs` events for all that was kept since the last call."""
        taken, self._parts = self._parts, []
        if not taken:
            return
        columns = [np.concatenate(parts) for parts in zip(*taken, strict=True)]
        for start in range(0, len(columns[0]), MAX_PAIRS_PER_EVENT):
            part = [column[start : start + MAX_PAIRS_PER_EVENT] for column in columns]
            phase, verdict, place, appended_ms, latest_ms, mean_ms, scheduled_us = part
            yield {
                "phases": [PHASES[code] for code in phase.tolist()],
                "verdicts": verdict.tolist(),
                "partitions": (place >> OFFSET_BITS).tolist(),
                "offsets": (place & _OFFSETS).tolist(),
                "appended_ms": appended_ms.tolist(),
                "latest_input_ms": latest_ms.tolist(),
                "mean_input_ms": mean_ms.tolist(),
                "scheduled_us": scheduled_us.tolist(),
            }


def without(fields: dict[str, Any], published: Ints) -> dict[str, Any] | None:
    """An event without the pairs that were published before, given as sorted places; None where
    nothing is left."""
    place = places(np.array(fields["partitions"], np.int64), np.array(fields["offsets"], np.int64))
    keep = np.flatnonzero(~np.isin(place, published)).tolist()
    if not keep:
        return None
    return {
        name: [value[row] for row in keep] if isinstance(value, list) else value
        for name, value in fields.items()
    }
