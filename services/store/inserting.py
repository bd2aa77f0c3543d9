"""Inserts that are made again when they fail: each row once, or the process ends loudly.

An insert either puts all rows of a block into its table or none, but the answer may be lost. So
before it is made again the table itself is asked how far it got.
"""

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import structlog
from prometheus_client import Counter

from services.store.engine import Engine, EngineError, InsertTimeoutError
from services.store.positions import Place, read_done, table_done, write_positions
from services.store.rollups import fresh
from services.store.settings import StoreSettings

FIRST_DELAY_S: Final = 0.25
LONGEST_DELAY_S: Final = 5.0
POLL_S: Final = 0.25
ROWS = Counter("tidegauge_store_rows", "Rows inserted", ["table"])
RETRIES = Counter("tidegauge_store_insert_retries", "Inserts that failed and were made again")
log = structlog.get_logger()


def as_it_is(block: pa.Table) -> pa.Table:
    """The raw table's own rows."""
    return block


class Inserter:
    """Puts blocks into tables. For one thread. `stopped` ends the waiting between two tries."""

    def __init__(
        self,
        engine: Engine,
        settings: StoreSettings,
        stopped: Callable[[], bool],
        pause: Callable[[float], None] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._retry_s = settings.insert_retry_seconds
        self._stopped = stopped
        self._pause = pause
        self._clock_s = clock_s
        self._done: dict[str, dict[Place, int]] = {}

    def resume(self) -> None:
        """Learn how far each table of a topic got where they may differ. Raises EngineError."""
        self._done = read_done(self._engine)

    def insert(
        self, table: str, block: pa.Table, aggregate: Callable[[pa.Table], pa.Table] = as_it_is
    ) -> None:
        """Insert what the table does not have of the block, through `aggregate`.

        Raises EngineError when that has failed for `insert_retry_seconds`.
        """
        missing = fresh(block, self._done.get(table, {}))
        first = True

        def attempt() -> None:
            nonlocal missing, first
            if not first and missing.num_rows:
                missing = fresh(missing, table_done(self._engine, table, missing))
            first = False
            if missing.num_rows:
                rows = aggregate(missing)
                self._engine.insert(table, rows)
                ROWS.labels(table).inc(rows.num_rows)

        self._until_done(attempt, table)

    def write_positions(self, positions: dict[Place, int], now_ms: int) -> None:
        """Record positions; as `insert`. Twice is as good as once."""
        self._until_done(lambda: write_positions(self._engine, positions, now_ms), "positions")

    def _until_done(self, attempt: Callable[[], None], table: str) -> None:
        delay_s, give_up_s = FIRST_DELAY_S, self._clock_s() + self._retry_s
        while True:
            try:
                attempt()
                return
            except InsertTimeoutError:
                raise  # it may still be going on: only a table that rests can be asked
            except EngineError as error:
                if self._clock_s() + delay_s > give_up_s or self._stopped():
                    raise
                reason = str(error)[:300]
                log.warning("insert_failed", table=table, reason=reason, again_in_s=delay_s)
            RETRIES.inc()
            self._wait(delay_s)
            delay_s = min(LONGEST_DELAY_S, 2 * delay_s)

    def _wait(self, delay_s: float) -> None:
        until_s = self._clock_s() + delay_s
        while self._clock_s() < until_s and not self._stopped():
            self._pause(min(POLL_S, delay_s))
