"""ClickHouse inside this process: chDB on a folder that this process alone owns.

What was found with chDB 4.4 (ClickHouse 26.9), and what is arranged accordingly:
- One connection runs one query at a time: a second thread on it waits for the first. Connections
  of one process to one folder do not wait for each other: inserts took 3 to 4 ms each, as always,
  while another connection ran a query for 3 s. So the projecting thread has a connection of its own
  and every query over HTTP gets a fresh one, which with its settings costs about 1 ms.
- The interpreter lock is not held while a query runs.
- `SET readonly = 1` holds for one connection and cannot be taken back there, not by a second
  statement nor a SETTINGS clause.
- A streamed insert of one Arrow record batch (50 000 rows) makes one part: it is there or not.
- A second process on the same folder gets an error without a reason. A lock file gives the reason.
"""

import fcntl
import io
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import chdb
import pyarrow as pa
from chdb.state.sqlitelike import Connection

from services.store.engine import Answer, EngineError, Query
from services.store.permissions import format_clause, quoted, refusal, refusal_to_admin
from services.store.settings import StoreSettings
from services.store.tables import DATABASE

CLOSE_TIMEOUT_S = 5.0
# Settings that change how an answer is written or joined, and reach nothing.
FREE_SETTINGS = (
    "output_format_",
    "format_",
    "input_format_",
    "date_time_",
    "session_timezone",
    "join_",
    "max_",
    "extremes",
    "limit",
    "offset",
    "final",
    "union_default_mode",
    "distinct_overflow_mode",
    "group_by_",
    "insert_",
    "async_insert",
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class FolderTakenError(RuntimeError):
    """Another process owns the folder."""


class ChdbEngine:
    """`Engine` on chDB. See services/store/engine.py for what the methods promise."""

    def __init__(self, settings: StoreSettings) -> None:
        """Open the folder, creating it where it is not there. Raises FolderTakenError."""
        folder = settings.database_dir.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _own(folder)
        self._folder = folder
        self._settings = settings
        self._closing = False
        self._slots = threading.BoundedSemaphore(settings.query_slots)
        with _engine_errors():
            self._writer: Connection = chdb.connect(str(folder))

    def execute(self, statements: Iterable[str]) -> None:
        for statement in statements:
            with _engine_errors():
                self._writer.query(statement, "Null")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with _engine_errors():
            data = self._writer.query(sql, "JSONEachRow").bytes()
        return [json.loads(line) for line in data.splitlines()]

    def insert(self, table: str, block: pa.Table) -> None:
        data = io.BytesIO()
        with pa.ipc.new_stream(data, block.schema) as stream:
            stream.write_table(block.combine_chunks())
        names = ", ".join(f"`{name}`" for name in block.column_names)
        with (
            _engine_errors(),
            self._writer.send_insert(
                f"INSERT INTO {DATABASE}.{table} ({names})", "ArrowStream"
            ) as insert,
        ):
            insert.append(data.getvalue())
            insert.finish()

    def answer(self, query: Query) -> Answer:
        if self._closing or not self._slots.acquire(timeout=self._settings.query_wait_seconds):
            raise EngineError("Code: 202. DB::Exception: Too many simultaneous queries.")
        try:
            with self._reader() as connection:
                return self._answer(connection, query)
        finally:
            self._slots.release()

    def close(self) -> None:
        """End running queries, which have five seconds for it, and let go of the folder."""
        self._closing = True
        with _engine_errors():
            self._writer.query("KILL QUERY WHERE query NOT LIKE 'KILL%'", "Null")
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for _slot in range(self._settings.query_slots):
            self._slots.acquire(timeout=max(0.0, deadline - time.monotonic()))
        self._writer.close()
        self._lock.close()

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        with _engine_errors():
            connection = chdb.connect(str(self._folder))
        try:
            yield connection
        finally:
            connection.close()

    def _answer(self, connection: Connection, query: Query) -> Answer:
        with _engine_errors():
            for statement in self._preparation(query):
                connection.query(statement, "Null")
            formatted = _formatted(connection, query.text)
            self._check(connection, query, formatted)
            started = time.monotonic()
            if query.data:
                _insert_data(connection, formatted, query.data)
                return Answer(b"", query.output_format, 0, 0, time.monotonic() - started)
            result = connection.query(query.text, query.output_format, dict(query.parameters))
            return Answer(
                data=result.bytes(),
                output_format=format_clause(formatted) or query.output_format,
                rows_read=result.storage_rows_read(),
                bytes_read=result.storage_bytes_read(),
                elapsed_s=time.monotonic() - started,
            )

    def _check(self, connection: Connection, query: Query, formatted: str) -> None:
        judge = refusal_to_admin if query.may_write else refusal
        # Twice: a statement that its words rule out is not given to the engine at all.
        reason = judge(formatted, "")
        if reason is None:
            explained = f"EXPLAIN AST {formatted}"
            tree = connection.query(explained, "TSVRaw", dict(query.parameters)).bytes()
            reason = judge(formatted, bytes(tree).decode(errors="replace"))
        if reason is not None:
            raise EngineError(f"Code: 164. DB::Exception: {reason} (READONLY)")

    def _preparation(self, query: Query) -> Iterator[str]:
        """Statements that prepare a connection for one query; for the reader, the last one closes
        the door behind them."""
        yield f"USE {_quoted_name(query.database)}"
        bounds = self._bounds()
        for name, value in query.settings.items():
            if not _NAME.fullmatch(name):
                raise EngineError(f"Code: 115. DB::Exception: Unknown setting {name!r}.")
            if name in bounds or name == "readonly":
                continue
            if not (query.may_write or name.startswith(FREE_SETTINGS)):
                raise EngineError(
                    f"Code: 164. DB::Exception: The setting {name} cannot be changed here."
                    " (READONLY)"
                )
            yield f"SET {name} = {quoted(value)}"
        if query.may_write:
            yield f"SET max_memory_usage = {bounds['max_memory_usage']}"
            return
        tight = {name: _tighter(query.settings.get(name), bound) for name, bound in bounds.items()}
        text = ", ".join(f"{name} = {value!r}" for name, value in tight.items())
        yield f"SET {text}, readonly = 1"

    def _bounds(self) -> dict[str, float | str]:
        bounds = self._settings
        return {
            "max_execution_time": bounds.query_max_seconds,
            "max_result_rows": bounds.query_max_rows,
            "max_result_bytes": bounds.query_max_result_bytes,
            "max_memory_usage": bounds.query_max_memory_bytes,
            "max_threads": bounds.query_threads,
            "result_overflow_mode": "throw",
            "timeout_overflow_mode": "throw",
        }


def _tighter(asked: str | None, bound: float | str) -> float | str:
    """The smaller of two bounds; 0 asks for none, which is more than any. Raises EngineError."""
    if asked is None or isinstance(bound, str):
        return bound
    try:
        wanted = float(asked)
    except ValueError as error:
        raise EngineError(f"Code: 72. DB::Exception: {asked!r} is not a number.") from error
    if not 0 < wanted < bound:
        return bound
    return int(wanted) if isinstance(bound, int) else wanted


def _formatted(connection: Connection, text: str) -> str:
    """A query as the engine writes it itself, one statement. Raises what the parser raises."""
    sql = f"SELECT formatQuerySingleLine({quoted(text)})"
    try:
        return bytes(connection.query(sql, "RawBLOB").bytes()).decode(errors="replace")
    except (chdb.ChdbError, RuntimeError) as error:
        wrapped = ": In scope SELECT formatQuerySingleLine("
        raise EngineError(str(error).split(wrapped)[0] + " (SYNTAX_ERROR)") from error


def _insert_data(connection: Connection, formatted: str, data: bytes) -> None:
    """Run an INSERT whose data came beside its text."""
    text, _, output_format = formatted.rpartition(" FORMAT ")
    if not text:
        raise EngineError("Code: 62. DB::Exception: The INSERT names no FORMAT. (SYNTAX_ERROR)")
    with connection.send_insert(text, output_format.strip()) as insert:
        insert.append(data)
        insert.finish()


def _quoted_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


@contextmanager
def _engine_errors() -> Iterator[None]:
    """chDB raises ChdbError or plain RuntimeError; here both are EngineError."""
    try:
        yield
    except EngineError:
        raise
    except (chdb.ChdbError, RuntimeError) as error:
        raise EngineError(str(error)) from error


def _own(folder: Path) -> IO[str]:
    lock = (folder.parent / f"{folder.name}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise FolderTakenError(f"another process owns {folder}") from error
    return lock
