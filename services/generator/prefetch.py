"""A load in slices, encoded in advance so that encoding never delays the schedule."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from schemas.curves import SECOND_US
from schemas.domain import DomainSpec
from services.generator.dataset_plan import DatasetPlan, Rows, concatenated, sent_rows
from services.generator.message_batch import MessageBatch, RecordBuilder
from services.generator.shapes import SLICE_RECORDS, Slice, slices

PREFETCHED_SLICES = 4
LOOK_S = 0.5  # interval between checks of the stop flag


@dataclass(frozen=True)
class Prepared:
    """The records due during a slice: one batch for each topic with records."""

    slice: Slice
    batches: tuple[MessageBatch, ...]


class PlannedLoad:
    """One load: its plan, start (epoch milliseconds) and duration."""

    def __init__(self, plan: DatasetPlan, load_start_ms: int, seconds: int) -> None:
        self.plan = plan
        self.load_start_ms = load_start_ms
        self.seconds = seconds
        self.end_us = seconds * SECOND_US
        self._builders = {
            one.name: RecordBuilder(plan, one, load_start_ms) for one in plan.domain.inputs
        }

    def shorten(self, seconds: int) -> None:
        """End the load earlier; call well before the new end."""
        self.seconds, self.end_us = seconds, seconds * SECOND_US

    def due(self, elapsed_us: int) -> int:
        """Number of records of this shard that are due."""
        shape, shard = self.plan.shape, self.plan.shard
        return shard.before(shape.due(min(elapsed_us, self.end_us - 1)))

    def prepared(self, limit: int = SLICE_RECORDS) -> Iterator[Prepared]:
        """All slices in order, encoded. Late records are held back until the slice of their send
        time."""
        plan = self.plan
        held: list[Rows] = []
        for part in slices(plan.shape, self.seconds, plan.event_second_us, limit):
            if part.end_us > self.end_us:
                break  # the load was shortened
            rows = plan.rows(part, self.load_start_ms, self.end_us)
            if plan.request.workload.faults.any:
                waiting = concatenated([*held, rows])
                # The load may have been shortened since some were held back.
                due_us = np.minimum(waiting.due_us, self.end_us - 1)
                waiting = replace(waiting, due_us=due_us)
                later = waiting.due_us >= part.end_us
                held = [waiting.take(later)]
                rows = sent_rows(waiting.take(~later))
            if len(rows):
                yield Prepared(part, self._batches(rows, self.plan.domain_at(part.second)))

    def _batches(self, rows: Rows, domain: DomainSpec) -> tuple[MessageBatch, ...]:
        """domain: with the topics written now."""
        of_inputs = ((name, self.plan.rows_of(name, rows)) for name in self._builders)
        return tuple(
            self._builders[name].batch(part, domain.input(name).topic)
            for name, part in of_inputs
            if len(part)
        )


class Prefetch:
    """Prepares the slices of a load in a separate thread, at most PREFETCHED_SLICES ahead."""

    def __init__(self, load: PlannedLoad, stop: threading.Event) -> None:
        self._load = load
        self._stop = stop
        self._ready: queue.Queue[Prepared | Exception | None] = queue.Queue(PREFETCHED_SLICES)
        threading.Thread(target=self._work, name="prefetch", daemon=True).start()

    def __iter__(self) -> Iterator[Prepared]:
        """The slices in order; ends early when stopped. Raises the exception of the preparing
        thread."""
        while not self._stop.is_set():
            try:
                item = self._ready.get(timeout=LOOK_S)
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
        except Exception as error:  # the sending thread re-raises it, which ends the run
            self._put(error)

    def _put(self, item: Prepared | Exception | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=LOOK_S)
                return True
            except queue.Full:
                continue
        return False
