"""The interface to ClickHouse that the store needs, for the embedded engine (chDB) and a server."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


_CODE = re.compile(r"Code: (\d+)\.")


class EngineError(RuntimeError):
    """ClickHouse rejected a statement or failed. The text is ClickHouse's; `code` is its exception
    code."""

    @property
    def code(self) -> int:
        """ClickHouse's exception code, or 1002 (UNKNOWN_EXCEPTION) if there is none."""
        match = _CODE.search(str(self))
        return int(match[1]) if match else 1002


class InsertTimeoutError(EngineError):
    """ClickHouse did not answer in time, or at all, so the insert may still be running."""


@dataclass(frozen=True)
class Query:
    """One query over HTTP.

    output_format: applies if the text has no FORMAT clause. settings: ClickHouse settings for this
    query; only the admin can widen bounds. parameters: values of `{name:Type}` in the text.
    may_write: whether it is the admin's, who may also change tables of the database. data: the data
    after the text of an INSERT. id: for cancelling it. is_known: whether the client has given a
    password; a slot is reserved for those who have.
    """

    text: str
    output_format: str = "TabSeparated"
    database: str = "tidegauge"
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    may_write: bool = False
    data: bytes = b""
    id: str = ""
    is_known: bool = False


@dataclass(frozen=True)
class Answer:
    """Result of a query: the bytes in `output_format`, and statistics of what it read, returned and
    wrote."""

    data: bytes
    output_format: str
    rows_read: int
    bytes_read: int
    elapsed_s: float
    result_rows: int = 0
    result_bytes: int = 0
    rows_written: int = 0
    bytes_written: int = 0


def want_size(size: int, most: int) -> None:
    """Raise EngineError if a response has more than `most` bytes. ClickHouse limits the columns of
    a result, not the text that is made of them."""
    if size > most:
        raise EngineError(f"Code: 396. The response has more than {most} bytes")


def want_rows(rows: int, most: int) -> None:
    """Raise EngineError if a response has more than `most` rows. ClickHouse does not look where the
    request has set `break` for a smaller number of bytes."""
    if rows > most:
        raise EngineError(f"Code: 396. DB::Exception: The result has more than {most} rows")


class SqlEngine(Protocol):
    """A ClickHouse that stores the projection. Calls may come from several threads.

    Only the projecting thread calls `execute` and `insert`. `answer` may run concurrently in any
    number of threads, and never blocks them.
    """

    def execute(self, statements: Iterable[str]) -> None:
        """Run statements without a result, in order. Raises EngineError."""

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Result of a trusted query as dictionaries. Raises EngineError."""

    def insert(self, table: str, block: "pa.Table") -> None:
        """Append a block of one partition: all of its rows or, on EngineError, none."""

    def answer(self, query: Query) -> Answer:
        """Answer a query within bounds. Only a query with `may_write` can change data. Raises
        EngineError."""

    def cancel(self, query_id: str) -> None:
        """Cancel a query if it is running. Raises EngineError."""

    def release_memory(self) -> None:
        """Return free memory of this process to the operating system."""

    def close(self) -> None:
        """Cancel running queries and release the data."""
