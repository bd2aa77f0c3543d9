"""Retries failed inserts: each row is inserted once, or the process ends with an error.

An insert puts either all rows of a block into its table or none, but its answer may be lost. Before
a retry, the table itself is asked for the last offset inserted.
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
# ClickHouse's codes for rejected values: the engine works, and a retry would give the same error.
REFUSING_CODES: Final = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        128,  # TOO_LARGE_ARRAY_SIZE
        131,  # TOO_LARGE_STRING_SIZE
        190,  # SIZES_OF_ARRAYS_DONT_MATCH
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        407,  # DECIMAL_OVERFLOW
        469,  # VIOLATED_CONSTRAINT
    }
)
ROWS = Counter("tidegauge_store_rows", "Rows inserted", ["table"])
RETRIES = Counter("tidegauge_store_insert_retries", "Inserts that failed and were retried")
log = structlog.get_logger()


class RefusedValuesError(EngineError):
    """ClickHouse rejects the values of a block; retrying is useless."""


def as_it_is(block: pa.Table) -> pa.Table:
    """The rows of the raw table, unchanged."""
    return block


class Inserter:
    """Inserts blocks into tables. Not thread-safe. `stopped` ends the wait between two attempts."""

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
        """Read the position of each table, for topics with several tables. Raises EngineError."""
        self._done = read_done(self._engine)

    def insert(
        self, table: str, block: pa.Table, aggregate: Callable[[pa.Table], pa.Table] = as_it_is
    ) -> None:
        """Insert those rows of the block that the table does not have yet, through `aggregate`.

        Raises RefusedValuesError at once, EngineError after failing for `insert_retry_seconds`.
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
        """Record positions, with retries. Idempotent."""
        self._until_done(lambda: write_positions(self._engine, positions, now_ms), "positions")

    def _until_done(self, attempt: Callable[[], None], table: str) -> None:
        delay_s, give_up_s = FIRST_DELAY_S, self._clock_s() + self._retry_s
        while True:
            try:
                attempt()
                return
            except InsertTimeoutError:
                raise  # it may still be running: a table can only be asked when no insert is
            except EngineError as error:
                if error.code in REFUSING_CODES:
                    raise RefusedValuesError(str(error)) from error
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
