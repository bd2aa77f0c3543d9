"""Writes records of the bus into their tables, and sets aside those that cannot become rows.

A failed insert is retried: each row is inserted once, or the process ends with an error. An insert
puts either all rows of a block into its table or none, but its answer may be lost. Before a retry,
the table itself is asked for the last offset inserted.

A record that cannot become rows is set aside before anything after it is written. The broker
acknowledges its dead letter first, so a process that ends in between finds it on the topic after
its restart.

The next offset to project of each partition is read from the projection itself. Offsets are not
committed anywhere else, so positions and rows cannot disagree.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from confluent_kafka import Message
from prometheus_client import Counter

from schemas.catalogue import DEAD_LETTER
from services.runtime.events import Events, dead_letter_of
from services.runtime.logs import get_log
from services.runtime.process import Clock
from services.store.engine import EngineError, InsertTimeoutError, SqlEngine
from services.store.engines.schema import ROLLUPS, fresh
from services.store.projection.rows import ConsumedRecord, batch_blocks, halves
from services.store.settings import StoreSettings
from services.store.tables import DATABASE, POSITION_COLUMNS, POSITIONS, TABLES

Place = tuple[str, int]
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
log = get_log()
MAX_REASON: Final = 300
RECORDS = Counter("tidegauge_store_records", "Records projected", ["topic"])
UNUSABLE = Counter("tidegauge_store_unusable_records", "Records moved to dead letters", ["topic"])
DROPPED = Counter("tidegauge_store_dropped_records", "Dead letters that cannot be stored as rows")


def read_positions(engine: SqlEngine) -> dict[Place, int]:
    """Next offset to project, by (topic, partition). Partitions without an entry start at their
    beginning."""
    rows = engine.rows(f"SELECT topic, partition, next_offset FROM {DATABASE}.projection_progress")
    return {(row["topic"], int(row["partition"])): int(row["next_offset"]) for row in rows}


def read_done(engine: SqlEngine) -> dict[str, dict[Place, int]]:
    """Next offset by table and partition, for topics with several tables.

    They differ if a process ended between two inserts, or if a table is new.
    """
    done: dict[str, dict[Place, int]] = {}
    for topic, rollups in ROLLUPS.items():
        for table in (TABLES[topic].name, *(rollup.name for rollup in rollups)):
            rows = engine.rows(
                f"SELECT _topic, _partition, max(_offset) + 1 AS next_offset"
                f" FROM {DATABASE}.{table} GROUP BY _topic, _partition"
            )
            done[table] = {
                (row["_topic"], int(row["_partition"])): int(row["next_offset"]) for row in rows
            }
    return done


def table_done(engine: SqlEngine, table: str, block: pa.Table) -> dict[Place, int]:
    """Next offset of one table in each partition that occurs in a block; all rows are of one
    topic."""
    topic = block["_topic"][0].as_py()
    places = ", ".join(str(number) for number in sorted(set(block["_partition"].to_pylist())))
    rows = engine.rows(
        f"SELECT _partition, max(_offset) + 1 AS next_offset FROM {DATABASE}.{table}"
        f" WHERE _topic = '{topic}' AND _partition IN ({places}) GROUP BY _partition"
    )
    return {(topic, int(row["_partition"])): int(row["next_offset"]) for row in rows}


def write_positions(engine: SqlEngine, positions: dict[Place, int], now_ms: int) -> None:
    """Record positions that no row shows."""
    if not positions:
        return
    columns = list(
        zip(*((*place, offset, now_ms) for place, offset in positions.items()), strict=True)
    )
    arrays = [
        pa.array(values, column.type)
        for values, column in zip(columns, POSITION_COLUMNS, strict=True)
    ]
    engine.insert(POSITIONS, pa.Table.from_arrays(arrays, schema=POSITION_COLUMNS))


def kept_dead_letters(
    engine: SqlEngine, positions: dict[Place, int], producer: str
) -> set[tuple[str, int, int]]:
    """(topic, partition, offset) of the store's dead letters about records not projected yet.

    They were published by a process that ended before it recorded the positions after them.
    """
    columns = "producer, topic, `partition`, `offset`"
    rows = engine.rows(f"SELECT DISTINCT {columns} FROM {DATABASE}.dead_letter")
    rows = [row for row in rows if row["producer"] == producer]
    places = ((row["topic"], int(row["partition"]), int(row["offset"])) for row in rows)
    return {place for place in places if place[2] >= positions.get(place[:2], 0)}


def starts(positions: dict[Place, int], bounds: dict[Place, tuple[int, int]]) -> dict[Place, int]:
    """Offset to start from in each partition, given its first and its end offset on the bus.

    If retention deleted records that were not projected (see `lost_before`), it is the first
    remaining offset. Raises ValueError with one sentence if a partition ends before its projected
    position.
    """
    for (topic, partition), (_low, end) in sorted(bounds.items()):
        position = positions.get((topic, partition), 0)
        if end < position:
            raise ValueError(
                f"{topic}/{partition} ends at offset {end}, but records before {position} were "
                "projected: this is another bus. Give each bus a --data folder (or a ClickHouse "
                "server) of its own."
            )
    return {place: max(positions.get(place, 0), low) for place, (low, _end) in bounds.items()}


@dataclass(frozen=True)
class Lost:
    """Offsets of a partition that retention deleted before they were projected: from `first` up to
    but excluding `end`."""

    place: Place
    first: int
    end: int

    @property
    def records(self) -> int:
        """Number of these offsets."""
        return self.end - self.first


def lost_before(positions: Mapping[Place, int], firsts: Mapping[Place, int]) -> list[Lost]:
    """Deleted offsets, given the positions and the first offsets on the bus."""
    return [
        Lost(place, positions.get(place, 0), first)
        for place, first in sorted(firsts.items())
        if positions.get(place, 0) < first
    ]


class RefusedValuesError(EngineError):
    """ClickHouse rejects the values of a block; retrying is useless."""


def as_it_is(block: pa.Table) -> pa.Table:
    """The rows of the raw table, unchanged."""
    return block


class Inserter:
    """Inserts blocks into tables. Not thread-safe. `stopped` ends the wait between two attempts."""

    def __init__(
        self,
        engine: SqlEngine,
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


class ProjectionError(RuntimeError):
    """Projection cannot continue without losing or repeating records; the text is the reason."""


@dataclass
class Writer:
    """Writes what the projector reads. Not thread-safe.

    kept: positions of dead letters about records that are not projected yet.
    """

    inserter: Inserter
    events: Events
    clock: Clock
    max_rows: int
    kept: frozenset[tuple[str, int, int]] = frozenset()

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        """Write consecutive records of one topic. Raises EngineError, ProjectionError."""
        table = TABLES[topic]
        records = [_record(message) for message in messages]
        batch, blocks = batch_blocks(table, records, self.events.name, self.max_rows)
        self._put_aside((messages[number], reason) for number, reason in batch.unusable)
        self._drop((messages[number], reason) for number, reason in batch.dropped)
        positions = {(topic, number): at for number, at in batch.hidden_positions.items()}

        def refuse(block: pa.Table, reason: str) -> None:
            partition, offset = block["_partition"][0].as_py(), block["_offset"][0].as_py()
            (message,) = (m for m in messages if (m.partition(), m.offset()) == (partition, offset))
            (self._drop if topic == DEAD_LETTER else self._put_aside)([(message, reason)])
            positions[topic, partition] = max(offset + 1, positions.get((topic, partition), 0))

        for block in blocks:
            for taken in list(self._insert(table.name, block, as_it_is, refuse)):
                for rollup in ROLLUPS.get(topic, ()):
                    list(self._insert(rollup.name, taken, rollup.aggregate, refuse))
        self.inserter.write_positions(positions, self.clock())
        RECORDS.labels(topic).inc(len(messages))

    def _insert(
        self,
        table: str,
        block: pa.Table,
        aggregate: Callable[[pa.Table], pa.Table],
        refuse: Callable[[pa.Table, str], None],
    ) -> Iterator[pa.Table]:
        """Insert a block. If the engine rejects its values, bisect it down to the bad record.
        Yields the inserted blocks."""
        try:
            self.inserter.insert(table, block, aggregate)
            yield block
        except RefusedValuesError as error:
            parts = halves(block)
            if parts is None:
                refuse(block, f"ClickHouse refuses its values: {error}"[:MAX_REASON])
                return
            for part in parts:
                yield from self._insert(table, part, aggregate, refuse)

    def _put_aside(self, unusable: Iterable[tuple[Message, str]]) -> None:
        published = False
        for message, reason in unusable:
            UNUSABLE.labels(message.topic()).inc()
            if (message.topic(), message.partition(), message.offset()) not in self.kept:
                self.events.dead_letter(dead_letter_of(message, reason))
                published = True
        if published and (self.events.flush() or self.events.failed):
            raise ProjectionError("The broker did not accept a dead letter in time.")

    def _drop(self, dropped: Iterable[tuple[Message, str]]) -> None:
        """Drop bad dead letters: a dead letter about a dead letter would cause an endless loop."""
        for message, reason in dropped:
            DROPPED.inc()
            where = f"{message.topic()}/{message.partition()}"
            log.warning("dead_letter_dropped", topic=where, offset=message.offset(), reason=reason)


def _record(message: Message) -> ConsumedRecord:
    _kind, stamp = message.timestamp()
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        stamp,
    )
