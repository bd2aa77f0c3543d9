"""The thread that runs a load: keeps the schedule, sends what is due, waits for what is not."""

import threading
import time
from collections.abc import Callable

from services.generator.curves import SECOND_US
from services.generator.message_batch import MessageBatch
from services.generator.outlet import Outlet
from services.generator.pacing import TICK_US, next_wake_us, plan_tick
from services.generator.prefetch import PlannedLoad, Prefetch, Prepared
from services.generator.settings import GeneratorSettings
from services.generator.statistics import Statistics
from services.runtime.clock import Clock

SEND_LIMIT = 5_000
WAIT_S = 0.02  # looks at `stop` at least this often
FULL_QUEUE_WAIT_S = 0.001


class LoadThread:
    """One load under way. `finished` is set at its end; then `error` says why it ended early.

    The schedule follows the wall clock, the same that `scheduled_at` is given in.
    """

    def __init__(
        self,
        load: PlannedLoad,
        statistics: Statistics,
        outlet: Outlet,
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
        self._outlet = outlet
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._stop = threading.Event()
        outlet.count_into(statistics.delivered)
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop at once; what was sent and not acknowledged has failed. Returns when it is over."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            for prepared in Prefetch(self._load, self._stop):
                self._send(prepared)
            self._finish()
        except Exception as error:  # told to the main thread, which ends the run with it
            self.error = error
            self._stop.set()
        finally:
            self.finished.set()

    def _send(self, prepared: Prepared) -> None:
        """Deal with every record of a slice: sent or, beyond the bound of the backlog, failed."""
        cursors = [BatchCursor(batch) for batch in prepared.batches]
        ours_until = self._load.plan.shard.before(prepared.slice.end)
        while cursors and not self._stop.is_set():
            elapsed_us = self._elapsed_us()
            self._statistics.open_until(elapsed_us)
            due = sum(each.due(elapsed_us) for each in cursors)
            later = max(0, self._load.due(elapsed_us) - ours_until)
            self.waiting_records = due + later
            tick = plan_tick(due, later, self._may_wait_records(elapsed_us), SEND_LIMIT)
            self._deal(cursors, tick.give_up, self._give_up, elapsed_us)
            sent = self._deal(cursors, tick.send, self._hand_over, elapsed_us)
            cursors = [each for each in cursors if each.left]
            if sent < tick.send:
                self._sleep(FULL_QUEUE_WAIT_S)
            elif cursors and tick.give_up + sent == due:
                self._wait_until(wake_us(cursors, elapsed_us))

    def _deal(
        self,
        cursors: "list[BatchCursor]",
        records: int,
        how: "Callable[[BatchCursor, int], int]",
        now_us: int,
    ) -> int:
        """Deal with the oldest `records` due ones, about the same share of every batch."""
        left, done = records, 0
        for number, each in enumerate(cursors):
            part = -(-left // (len(cursors) - number))
            rest = sum(other.due(now_us) for other in cursors[number + 1 :])
            stop = each.position + min(each.due(now_us), max(part, left - rest))
            if stop > each.position:
                left -= stop - each.position
                done += how(each, stop)
        return done

    def _hand_over(self, each: "BatchCursor", stop: int) -> int:
        """Send up to position `stop` of a batch. Sent is when the client has taken them: the latest
        moment, so a delay is never shown as less than it was."""
        batch, start = each.batch, each.position
        each.position = self._outlet.send(batch, start, stop)
        taken = slice(start, each.position)
        self._statistics.sent(batch, taken, self._elapsed_us())
        if self._faulty:
            self._statistics.injected(batch.faults[taken][batch.seconds[taken] >= 0])
        return each.position - start

    def _give_up(self, each: "BatchCursor", stop: int) -> int:
        start, each.position = each.position, stop
        self._statistics.given_up(each.batch.seconds[start:stop])
        return stop - start

    def _may_wait_records(self, elapsed_us: int) -> int:
        """Bound of the backlog: none is left when the load has been over for long enough."""
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
        while self._outlet.flush(0.1) and not self._stop.is_set():
            continue
        if self._stop.is_set():
            self._outlet.purge()
            self._outlet.flush(1)

    def _elapsed_us(self) -> int:
        return self._clock() - self._load.load_start_ms * 1000


class BatchCursor:
    """A batch and the position of its first message that is not dealt with."""

    def __init__(self, batch: MessageBatch) -> None:
        self.batch = batch
        self.position = 0

    @property
    def left(self) -> int:
        """How many messages are not dealt with."""
        return len(self.batch) - self.position

    def due(self, elapsed_us: int) -> int:
        """How many of them are due."""
        end = self.batch.due_us.searchsorted(elapsed_us, side="right")
        return max(0, int(end) - self.position)


def wake_us(cursors: list[BatchCursor], elapsed_us: int) -> int:
    """Elapsed time at which to look again when nothing more of these batches is due now."""
    next_us = min(int(each.batch.due_us[each.position]) for each in cursors)
    soon = sum(each.due(elapsed_us + TICK_US) for each in cursors)
    return next_wake_us(next_us, soon, elapsed_us)
