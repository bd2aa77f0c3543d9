"""The thread that runs a load: follows the schedule and sends the records that are due.

The load is open-loop: which records are due depends on time only, never on the broker's responses.

It comes in slices, encoded in advance so that encoding never delays the schedule.
"""

import queue
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from schemas.curves import SECOND_US
from schemas.domain import DomainSpec
from schemas.protocol import PhasePlan
from services.generator.dataset_plan import DatasetPlan, RecordArrays, concatenated, sent_rows
from services.generator.message_batch import MessageBatch, RecordBuilder
from services.generator.producer_backend import ProducerBackend
from services.generator.settings import GeneratorSettings
from services.generator.shapes import SLICE_RECORDS, Slice, slices
from services.generator.statistics import Statistics
from services.runtime.process import Clock

PREFETCHED_SLICES = 4
LOOK_S = 0.5  # interval between checks of the stop flag
SEND_LIMIT = 5_000
TICK_US = 1_000
OWN_TIME_RECORDS_PER_TICK = 2  # up to 2,000 records/s each record is sent at its own time
WAIT_S = 0.02  # upper limit between checks of `stop`
FULL_QUEUE_WAIT_S = 0.001
STALL_US = 20_000  # a longer tick is the generator's own delay, not the queue's


@dataclass(frozen=True)
class DueRecords:
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
            each.name: RecordBuilder(plan, each, load_start_ms) for each in plan.domain.inputs
        }

    def shorten(self, seconds: int) -> None:
        """End the load earlier; call well before the new end."""
        self.seconds, self.end_us = seconds, seconds * SECOND_US

    def due(self, elapsed_us: int) -> int:
        """Number of records of this shard that are due."""
        shape, shard = self.plan.shape, self.plan.shard
        return shard.before(shape.due(min(elapsed_us, self.end_us - 1)))

    def prepared(self, limit: int = SLICE_RECORDS) -> Iterator[DueRecords]:
        """All slices in order, encoded. Late records are held back until the slice of their send
        time."""
        plan = self.plan
        held: list[RecordArrays] = []
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
                yield DueRecords(part, self._batches(rows, self.plan.domain_at(part.second)))

    def _batches(self, rows: RecordArrays, domain: DomainSpec) -> tuple[MessageBatch, ...]:
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
        self._ready: queue.Queue[DueRecords | Exception | None] = queue.Queue(PREFETCHED_SLICES)
        threading.Thread(target=self._work, name="prefetch", daemon=True).start()

    def __iter__(self) -> Iterator[DueRecords]:
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

    def _put(self, item: DueRecords | Exception | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=LOOK_S)
                return True
            except queue.Full:
                continue
        return False


class Tick(NamedTuple):
    """Actions of one tick: give up the oldest `give_up` records, then send the next `send`."""

    give_up: int
    send: int


class LoadThread:
    """One running load. `finished` is set at its end; `error` then gives the reason if it ended
    early.

    The schedule follows the wall clock, on which `scheduled_at` is based too.
    """

    def __init__(
        self,
        load: PlannedLoad,
        statistics: Statistics,
        backend: ProducerBackend,
        settings: GeneratorSettings,
        clock: Clock,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.finished = threading.Event()
        self.error: Exception | None = None
        self.waiting_records = 0
        self._load = load
        self._faulty = load.plan.request.workload.faults.any
        self._statistics = statistics
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._stop = threading.Event()
        # Elapsed time since which the client's queue is full at times; None if no record waits.
        self._full_since_us: int | None = None
        self._ticked_us = 0
        backend.count_into(statistics.delivered)
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def replan(self, plan: PhasePlan) -> None:
        """Replace the phases by shorter ones."""
        self._statistics.replan(plan)
        self._load.shorten(plan.phases.total_s)

    def stop(self) -> None:
        """Stop immediately and wait for the thread. Unacknowledged records have failed."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            for prepared in Prefetch(self._load, self._stop):
                self._send(prepared)
            self._finish()
        except Exception as error:  # the main thread ends the run with this error
            self.error = error
            self._stop.set()
        finally:
            self.finished.set()

    def _send(self, prepared: DueRecords) -> None:
        """Send every record of a slice, or give it up if the backlog is full."""
        cursors = [BatchCursor(batch) for batch in prepared.batches]
        ours_until = self._load.plan.shard.before(prepared.slice.end)
        end_us = prepared.slice.end_us
        while cursors and not self._stop.is_set():
            elapsed_us = self._elapsed_us()
            self._statistics.open_until(elapsed_us)
            self._leave_out_stall(elapsed_us)
            dues = [each.due(elapsed_us) for each in cursors]
            due = sum(dues)
            later = max(0, self._load.due(elapsed_us) - ours_until) if elapsed_us >= end_us else 0
            self.waiting_records = due + later
            tick = plan_tick(due, later, self._may_wait_records(elapsed_us), SEND_LIMIT)
            if tick.give_up:
                self._deal(cursors, dues, tick.give_up, self._give_up)
                dues = [each.due(elapsed_us) for each in cursors]
            sent = self._deal(cursors, dues, tick.send, self._hand_over)
            cursors = [each for each in cursors if each.left]
            if sent < tick.send:
                if self._full_since_us is None:
                    self._full_since_us = elapsed_us
                self._backend.count_outcomes()
                self._sleep(FULL_QUEUE_WAIT_S)
                continue
            if tick.give_up + sent == due + later:
                self._full_since_us = None
            if cursors and tick.give_up + sent == due:
                self._backend.count_outcomes()
                self._wait_until(wake_us(cursors, elapsed_us))

    def _deal(
        self,
        cursors: "list[BatchCursor]",
        dues: list[int],
        records: int,
        how: "Callable[[BatchCursor, int], int]",
    ) -> int:
        """Apply `how` to the oldest `records` due records, in about the same share of every batch.
        dues: number of due records in each batch."""
        left, done = records, 0
        for number, each in enumerate(cursors):
            if not dues[number]:
                continue
            part = -(-left // (len(cursors) - number))
            rest = sum(dues[number + 1 :])
            stop = each.position + min(dues[number], max(part, left - rest))
            if stop > each.position:
                left -= stop - each.position
                done += how(each, stop)
        return done

    def _hand_over(self, each: "BatchCursor", stop: int) -> int:
        """Send up to position `stop` of a batch. The send time is taken after the client has
        accepted the records, so that no delay is understated."""
        batch, start = each.batch, each.position
        each.position = self._backend.send(batch, start, stop)
        taken = slice(start, each.position)
        self._statistics.sent(batch, taken, self._elapsed_us(), self._full_since_us)
        if self._faulty:
            self._statistics.injected(batch.faults[taken][batch.seconds[taken] >= 0])
        return each.position - start

    def _leave_out_stall(self, elapsed_us: int) -> None:
        """Do not count a long tick as time in which the queue was full."""
        stalled_us, self._ticked_us = elapsed_us - self._ticked_us, elapsed_us
        if self._full_since_us is not None and stalled_us > STALL_US:
            self._full_since_us = min(elapsed_us, self._full_since_us + stalled_us)

    def _give_up(self, each: "BatchCursor", stop: int) -> int:
        start, each.position = each.position, stop
        self._statistics.given_up(each.batch.seconds[start:stop])
        return stop - start

    def _may_wait_records(self, elapsed_us: int) -> int:
        """Limit of the backlog; 0 once the delivery timeout has passed since the load's end."""
        timeout_us = self._settings.generator_delivery_timeout_s * SECOND_US
        over = elapsed_us > self._load.end_us + timeout_us
        return 0 if over else self._settings.generator_backlog_records

    def _wait_until(self, wake_us: int) -> None:
        while not self._stop.is_set():
            left_s = (wake_us - self._elapsed_us()) / 1e6
            if left_s <= 0:
                return
            self._sleep(min(left_s, WAIT_S))

    def _finish(self) -> None:
        """Wait for the load's end, then until every record is acknowledged or has failed."""
        self._wait_until(self._load.end_us)
        self._statistics.open_until(self._elapsed_us())
        while self._backend.flush(0.1) and not self._stop.is_set():
            continue
        if self._stop.is_set():
            self._backend.purge()
            self._backend.flush(1)

    def _elapsed_us(self) -> int:
        return self._clock() - self._load.load_start_ms * 1000


class BatchCursor:
    """A batch, and the position of its first message that is neither sent nor given up."""

    def __init__(self, batch: MessageBatch) -> None:
        self.batch = batch
        self.position = 0
        # At low rates it is searched for every record, and a scalar search in an array is slow.
        self._due_us = batch.due_us.data

    @property
    def left(self) -> int:
        """Number of messages neither sent nor given up."""
        return len(self.batch) - self.position

    @property
    def next_us(self) -> int:
        """Scheduled time of the first of them."""
        due_us: int = self._due_us[self.position]
        return due_us

    def due(self, elapsed_us: int) -> int:
        """Number of those that are due."""
        return bisect_right(self._due_us, elapsed_us, self.position) - self.position


def wake_us(cursors: list[BatchCursor], elapsed_us: int) -> int:
    """Elapsed time of the next tick if no further messages of these batches are due now."""
    next_us = min(each.next_us for each in cursors)
    soon = sum(each.due(elapsed_us + TICK_US) for each in cursors)
    return next_wake_us(next_us, soon, elapsed_us)


def plan_tick(due: int, later: int, backlog_records: int, limit: int) -> Tick:
    """The actions if `due` records of the current slice and `later` ones after it are waiting.

    Of the waiting records, only the newest `backlog_records` may continue to wait. At most `limit`
    are sent at once so that other work gets its turn.
    """
    give_up = min(max(0, due + later - backlog_records), due)
    return Tick(give_up, min(due - give_up, limit))


def next_wake_us(next_due_us: int, due_in_a_tick: int, elapsed_us: int) -> int:
    """Elapsed time of the next tick if everything due has been sent.

    The scheduled time of the next record; or, if records are closer than ticks (`due_in_a_tick`
    within the next one), the next tick.
    """
    crowded = due_in_a_tick > OWN_TIME_RECORDS_PER_TICK
    return max(next_due_us, elapsed_us + TICK_US) if crowded else next_due_us
