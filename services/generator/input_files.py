"""Read observations from CSV or Parquet, with a user's own column names.

A row that cannot be used does not stop anything: it comes back with its line and the reason, to
become a dead letter, and the others are used.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.content import FIELDS, NEEDED_FIELDS, Content
from services.generator.recording import Observation

NDW_PATH = Path(__file__).parent / "data" / "ndw_traffic_2017-03-15.csv"
MAX_ROWS = 1_000_000
_DEFAULTS: dict[str, Any] = {
    "lane": "lane1",
    "latitude": 0.0,
    "longitude": 0.0,
    "period_s": 60,
    "accuracy_percent": 100,
}
_RANGES: dict[str, tuple[float, float]] = {
    "latitude": (-90, 90),
    "longitude": (-180, 180),
    "period_s": (0, 2**31 - 1),
    "accuracy_percent": (0, 100),
    "flow_vehicles_per_hour": (0, 2**31 - 1),
    "speed_km_per_hour": (0, math.inf),
}
_INTEGERS = ("period_s", "accuracy_percent", "flow_vehicles_per_hour")
# A time outside these years is in another unit, or no time at all.
_FIRST_YEAR, _LAST_YEAR = 1900, 2199
_FIRST_US, _END_US = (
    int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    for year in (_FIRST_YEAR, _LAST_YEAR + 1)
)


class InputError(ValueError):
    """A file cannot be used at all; the text is one sentence."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: its line in the file (from 1; in Parquet, its row), the reason,
    and the row as it is. Speaks like a Kafka message, so that it can become a dead letter."""

    path: str
    line: int
    reason: str
    text: str

    def topic(self) -> str:
        """The file."""
        return self.path

    def partition(self) -> int:
        """None: -1."""
        return -1

    def offset(self) -> int:
        """The line."""
        return self.line

    def key(self) -> bytes | None:
        """None."""
        return None

    def value(self) -> bytes:
        """The row, UTF-8."""
        return self.text.encode()


@dataclass
class Read:
    """What was read."""

    observations: list[Observation] = field(default_factory=list)
    bad_rows: list[BadRow] = field(default_factory=list)


def read_input(content: Content) -> Read:
    """Read the file of a workload's content; the recorded sample has no bad rows.

    Raises InputError when the file is not there, is neither CSV nor Parquet, lacks a column, has
    more than MAX_ROWS rows or no usable one.
    """
    path = NDW_PATH if content.source == "ndw" else Path(content.path)
    columns = {name: content.columns.get(name, name) for name in FIELDS}
    read = Read()
    try:
        rows = _parquet(path, columns) if path.suffix == ".parquet" else _csv(path, columns)
        for number, (line, row) in enumerate(rows):
            if number == MAX_ROWS:
                raise InputError(f"{path} has more than {MAX_ROWS} rows.")
            try:
                read.observations.append(observation(row, columns))
            except ValueError as error:
                text = row if isinstance(row, str) else json.dumps(row, default=str)
                read.bad_rows.append(BadRow(str(path), line, str(error), text))
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    if not read.observations:
        raise InputError(f"{path} has no usable row.")
    return read


def observation(row: Mapping[str, Any] | str, columns: Mapping[str, str]) -> Observation:
    """The observation of a row; columns gives the row's name of each field. Raises ValueError."""
    if isinstance(row, str):
        raise ValueError("the row has another number of columns than the header")
    values: dict[str, Any] = {}
    for name in FIELDS:
        given = row.get(columns[name])
        if given is None or given == "":
            if name in NEEDED_FIELDS:
                raise ValueError(f"{columns[name]} is empty")
            values[name] = _DEFAULTS[name]
        elif name == "observed_at":
            values["time_us"] = _time_us(given, columns[name])
        elif name in _RANGES:
            values[name] = _number(name, given, columns[name])
        else:
            values[name] = str(given)
    values.pop("observed_at", None)
    return Observation(**values)


def _number(name: str, given: Any, column: str) -> float | int:
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is {given!r}, which is not a number") from None
    low, high = _RANGES[name]
    if not low <= number <= high or math.isinf(number):
        raise ValueError(f"{column} is {given}, which is not possible")
    if name not in _INTEGERS:
        return number
    if number != int(number):
        raise ValueError(f"{column} is {given}, which is not a whole number")
    return int(number)


def _time_us(given: Any, column: str) -> int:
    """A time as text (ISO 8601, UTC where it does not say) or datetime; a number is epoch ms.

    Raises ValueError for what is none, or not in the years 1900 to 2199.
    """
    try:
        if isinstance(given, str) and given.lstrip("-").isdigit():
            given = int(given)
        time_us = given * 1000 if isinstance(given, int) else _moment_us(given)
    except ValueError:
        raise ValueError(f"{column} is {given!r}, which is not a time") from None
    if not _FIRST_US <= time_us < _END_US:
        raise ValueError(
            f"{column} is {given}, which is not in the years {_FIRST_YEAR} to {_LAST_YEAR}; "
            "a number must be milliseconds since 1970"
        )
    return time_us


def _moment_us(given: Any) -> int:
    moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole_s = int(moment.replace(microsecond=0).timestamp())
    return whole_s * 1_000_000 + moment.microsecond


def _csv(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str] | str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        _check_columns(path, header, columns)
        for cells in reader:
            if len(cells) == len(header):
                yield reader.line_num, dict(zip(header, cells, strict=True))
            elif cells:
                yield reader.line_num, ",".join(cells)


def _parquet(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
    with pq.ParquetFile(path) as file:
        _check_columns(path, file.schema_arrow.names, columns)
        wanted = [name for name in file.schema_arrow.names if name in columns.values()]
        line = 0
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                line += 1
                yield line, row


def _check_columns(path: Path, header: list[str], columns: Mapping[str, str]) -> None:
    for name in FIELDS:
        renamed = columns[name] != name
        if columns[name] not in header and (renamed or name in NEEDED_FIELDS):
            there = ", ".join(header) or "none"
            raise InputError(f"{path} has no column {columns[name]!r} for {name}; it has: {there}.")
