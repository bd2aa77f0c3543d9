"""What the store needs of ClickHouse, whatever runs it: embedded (chDB) or a server."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


_CODE = re.compile(r"Code: (\d+)\.")


class EngineError(RuntimeError):
    """ClickHouse refused or failed. The text is ClickHouse's; `code` is its exception code."""

    @property
    def code(self) -> int:
        """ClickHouse's exception code, or 1002 (UNKNOWN_EXCEPTION) where it gave none."""
        found = _CODE.search(str(self))
        return int(found[1]) if found else 1002


class InsertTimeoutError(EngineError):
    """No answer of ClickHouse's own came, or none in time, so it may still be going on."""


@dataclass(frozen=True)
class Query:
    """One query over HTTP.

    output_format: used where the text has no FORMAT clause. settings: ClickHouse settings for this
    query; bounds can only be tightened. parameters: values of `{name:Type}` in the text.
    may_write: whether it is the admin's, who may also change tables of the database. data: what
    follows the text of an INSERT. id: by which it can be ended. is_known: whether who asks has
    given a password; a slot is kept for those who have.
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
    """Result of a query: the bytes in `output_format`, and what reading it took."""

    data: bytes
    output_format: str
    rows_read: int
    bytes_read: int
    elapsed_s: float


class Engine(Protocol):
    """A ClickHouse that holds the projection. Calls may come from several threads.

    `execute` and `insert` belong to the one projecting thread; `answer` may run meanwhile, in any
    number of threads, and never holds the others up.
    """

    def execute(self, statements: Iterable[str]) -> None:
        """Run statements that return nothing, in order. Raises EngineError."""

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Result of a trusted query as dictionaries. Raises EngineError."""

    def insert(self, table: str, block: "pa.Table") -> None:
        """Append a block of one partition: all of its rows or, on an EngineError, none."""

    def answer(self, query: Query) -> Answer:
        """Answer a query within bounds; only one that may can change things. Raises EngineError."""

    def cancel(self, query_id: str) -> None:
        """End a query that runs; nothing where none does. Raises EngineError."""

    def close(self) -> None:
        """End running queries and let go of the data."""
