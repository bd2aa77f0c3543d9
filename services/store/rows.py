"""Converts one Kafka record to the rows of its table. Pure: the same record gives the same rows."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from schemas import codec
from schemas.events import check_finite
from services.store.tables import Table

YEAR_2100_MS = 4_102_444_800_000


class UnusableError(ValueError):
    """A record cannot be converted to rows; the text is the reason in one sentence, for the dead
    letter."""


@dataclass(frozen=True)
class Record:
    """One consumed Kafka record. timestamp_ms: from the broker or the producer."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0


@dataclass(frozen=True)
class Rows:
    """Rows of one record, as columns in the order of the table's schema.

    columns: with one value per row if the table explodes an array, else a single value shared by
    all rows. count: number of rows; 0 for a histogram without values. month: as `toYYYYMM(time)`,
    the table partition of all rows.
    """

    columns: tuple[list[Any], ...]
    count: int
    month: int

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset of the record."""
        return self.columns[-2][0], self.columns[-1][0]


def project(table: Table, record: Record) -> Rows:
    """Rows of one record of the table's topic. Raises UnusableError."""
    try:
        name, event = codec.decode(record.value)
        if name != table.record:
            raise UnusableError(f"{record.topic} carries {table.record}, not {name}.")
        check_finite(table.topic, event)
    except codec.DecodeError as error:
        raise UnusableError(f"{error}.") from error
    _check_times(table, event)
    _check_histogram(table, event)
    _check_lengths(table, event)
    return _rows(table, event, record)


def stand_in(table: Table, record: Record, reason: str, producer: str) -> Rows:
    """Row of `dead_letter` for a record on the topic dead-letter that is not a valid dead letter.

    Another dead letter for it would cause an endless loop, so the table stores it unchanged, with
    the broker's time.
    """
    event = {
        "run_id": "",
        "time": min(max(record.timestamp_ms, 0), YEAR_2100_MS - 1),
        "producer": producer,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "reason": reason.encode(errors="replace").decode(),
        "key": record.key,
        "value": record.value,
    }
    return _rows(table, event, record)


def _check_times(table: Table, event: dict[str, Any]) -> None:
    for name in table.times:
        value = event[name]
        if value is not None and not 0 <= value < YEAR_2100_MS:
            raise UnusableError(f"{name} {value} is not between the years 1970 and 2100.")


def _check_histogram(table: Table, event: dict[str, Any]) -> None:
    for name in table.counts:
        if min(event[name], default=1) <= 0:
            raise UnusableError(f"{name} must be greater than 0.")
        for values in table.values:
            if len(event[values]) != len(event[name]):
                raise UnusableError(f"{values} and {name} must have the same length.")


def _check_lengths(table: Table, event: dict[str, Any]) -> None:
    if len({len(event[name]) for name in table.explode}) > 1:
        raise UnusableError(f"{', '.join(table.explode)} must have the same length.")


def _rows(table: Table, event: dict[str, Any], record: Record) -> Rows:
    arrays = {column: event[name] for name, column in table.explode.items()}
    count = len(next(iter(arrays.values()))) if arrays else 1
    place = {
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
    }
    single = {**event, **place}
    columns = tuple(
        list(arrays[name]) if name in arrays else [single[name]] for name in table.columns.names
    )
    return Rows(columns, count, _month(event["time"]))


def _month(time_ms: int) -> int:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return moment.year * 100 + moment.month
