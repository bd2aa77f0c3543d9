"""Prepare records ahead of their time, so that encoding never delays the schedule."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.generator.content import KINDS, Rows, concatenated
from services.generator.curves import SECOND_US
from services.generator.messages import Lot, lot_of
from services.generator.pacing import SLICE_RECORDS, Slice, slices
from services.generator.recipe import Recipe, sent_rows

AHEAD_SLICES = 4


@dataclass(frozen=True)
class Prepared:
    """A slice as it goes out: what is due in its time, one lot per topic that has any."""

    slice: Slice
    lots: tuple[Lot, ...]


class Load:
    """One load: a recipe, when it starts (epoch milliseconds) and how long it lasts."""

    def __init__(self, recipe: Recipe, load_start_ms: int, seconds: int) -> None:
        self.recipe = recipe
        self.load_start_ms = load_start_ms
        self.seconds = seconds
        self.end_us = seconds * SECOND_US
        self._wording = recipe.wording(load_start_ms)

    def due(self, elapsed_us: int) -> int:
        """How many records of our share are due."""
        shape, share = self.recipe.shape, self.recipe.share
        return share.before(shape.due(min(elapsed_us, self.end_us - 1)))

    def prepared(self, limit: int = SLICE_RECORDS) -> Iterator[Prepared]:
        """All slices in order, encoded. Late records are held until the slice that they fall in."""
        recipe = self.recipe
        held: list[Rows] = []
        for part in slices(recipe.shape, self.seconds, recipe.event_second_us, limit):
            rows = recipe.rows(part, self.load_start_ms, self.end_us)
            if recipe.request.workload.faults.any:
                waiting = concatenated([*held, rows])
                later = waiting.due_us >= part.end_us
                held = [waiting.take(later)]
                rows = sent_rows(waiting.take(~later))
            if len(rows):
                yield Prepared(part, self._lots(rows))

    def _lots(self, rows: Rows) -> tuple[Lot, ...]:
        workload = self.recipe.request.workload
        lots = (
            lot_of(self._wording, kind, rows.take(of_kind), workload.content.format)
            for kind, of_kind in zip(KINDS, self._of_kinds(rows), strict=True)
        )
        return tuple(lot for lot in lots if len(lot))

    def _of_kinds(self, rows: Rows) -> "tuple[slice | NDArray[np.bool_], ...]":
        """Which rows are flows and which are speeds: every other one, as long as they are in the
        order of their sequence."""
        if self.recipe.request.workload.faults.any:
            even = rows.sequence % 2 == 0
            return even, ~even
        first = int(rows.sequence[0]) % 2
        return slice(first, None, 2), slice(1 - first, None, 2)


class Ahead:
    """Prepares the slices of a load in a thread of its own, at most AHEAD_SLICES ahead."""

    def __init__(self, load: Load, stop: threading.Event) -> None:
        self._load = load
        self._stop = stop
        self._ready: queue.Queue[Prepared | Exception | None] = queue.Queue(AHEAD_SLICES)
        threading.Thread(target=self._work, name="ahead", daemon=True).start()

    def __iter__(self) -> Iterator[Prepared]:
        """The slices in order; ends early when stopped. Raises what preparing raised."""
        while not self._stop.is_set():
            try:
                item = self._ready.get(timeout=0.1)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def _work(self) -> None:
        try:
            for prepared in self._load.prepared():
                if not self._put(prepared):
                    return
            self._put(None)
        except Exception as error:  # carried over to the thread that sends, which ends the run
            self._put(error)

    def _put(self, item: Prepared | Exception | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
