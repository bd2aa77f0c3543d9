"""The thread that runs a load: keeps the schedule, sends what is due, waits for what is not."""

import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer

from services.generator.ahead import Ahead, Load, Prepared
from services.generator.curves import SECOND_US
from services.generator.pacing import next_wake_us, plan_tick
from services.generator.sending import RecordSender
from services.generator.settings import GeneratorSettings
from services.generator.statistics import Statistics
from services.runtime.clock import Clock

SEND_LIMIT = 5_000
POLL_INTERVAL_S = 0.02  # acknowledgements are counted at least this often
FULL_QUEUE_WAIT_S = 0.001


class LoadThread:
    """One load under way. `finished` is set at its end; then `error` says why it ended early.

    The schedule follows the wall clock, the same that `scheduled_at` is given in.
    """

    def __init__(
        self,
        load: Load,
        statistics: Statistics,
        producer: Producer,
        settings: GeneratorSettings,
        clock: Clock,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.finished = threading.Event()
        self.error: Exception | None = None
        self.waiting_records = 0
        self._load = load
        self._end_us = load.seconds * SECOND_US
        self._statistics = statistics
        self._producer = producer
        self._records = RecordSender(producer, clock)
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop at once; what was sent and not acknowledged has failed. Returns when it is over."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            for prepared in Ahead(self._load, self._stop):
                self._send(prepared)
            self._finish()
        except Exception as error:  # told to the main thread, which ends the run with it
            self.error = error
            self._stop.set()
        finally:
            self.finished.set()

    def _send(self, prepared: Prepared) -> None:
        """Deal with every record of a slice: sent or, beyond the bound of the backlog, failed."""
        part = prepared.slice
        position = part.first
        while position < part.end and not self._stop.is_set():
            elapsed_us = self._elapsed_us()
            self._statistics.open_until(elapsed_us)
            due = min(self._load.shape.due(elapsed_us), self._load.records)
            self.waiting_records = due - position
            may_wait = self._may_wait_records(elapsed_us)
            tick = plan_tick(due, position, part.end, may_wait, SEND_LIMIT)
            if not tick.give_up and not tick.send:
                self._wait_until(next_wake_us(self._load.shape, position, elapsed_us))
                continue
            tally = self._statistics.tally(part.second)
            tally.failed += tick.give_up
            position += tick.give_up
            start = position - part.first
            done = self._records.send(prepared, start, start + tick.send, tally)
            position = part.first + done
            full = done < start + tick.send
            self._producer.poll(FULL_QUEUE_WAIT_S if full else 0)

    def _may_wait_records(self, elapsed_us: int) -> int:
        """Bound of the backlog: none is left when the load has been over for long enough."""
        timeout_us = self._settings.generator_delivery_timeout_s * SECOND_US
        over = elapsed_us > self._end_us + timeout_us
        return 0 if over else self._settings.generator_backlog_records

    def _wait_until(self, wake_us: int) -> None:
        while not self._stop.is_set():
            left_s = (wake_us - self._elapsed_us()) / 1e6
            if left_s <= 0:
                return
            self._sleep(min(left_s, POLL_INTERVAL_S))
            self._producer.poll(0)

    def _finish(self) -> None:
        """Wait for the load's end, then until every record is acknowledged or has failed."""
        self._wait_until(self._end_us)
        self._statistics.open_until(self._elapsed_us())
        while self._producer.flush(0.1) and not self._stop.is_set():
            continue
        if self._stop.is_set():
            self._producer.purge()
            self._producer.flush(1)

    def _elapsed_us(self) -> int:
        return self._clock() - self._load.load_start_ms * 1000
