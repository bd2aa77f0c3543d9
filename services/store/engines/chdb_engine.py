"""ClickHouse inside this process: chDB on a folder that only this process opens.

Observations with chDB 4.4 (ClickHouse 26.9), and their consequences here:
- One connection runs one query at a time: a second thread on it waits for the first. Connections of
one process to one folder do not wait for each other: inserts took 3 to 4 ms each, as always, while
another connection ran a query for 3 s. Therefore the projecting thread has its own connection, and
every query over HTTP gets a new one, which costs about 1 ms including its settings.
- The interpreter lock is released while a query runs.
- `SET readonly = 1` applies to one connection and cannot be undone on it, neither by another
statement nor by a SETTINGS clause.
- A streamed insert (`send_insert`) that fails reports all rows as written: on a full disk
everything was lost silently. A statement that reads a file raises, is as fast, and writes one Arrow
record batch (even of 3 M rows) as one part, which is atomic.
- On a full disk, DDL statements leave an empty file, after which the folder can never be opened
again. Therefore it is opened only if there is free space.
- A second process on the same folder gets an error without a reason. A lock file provides the
reason.
"""

import fcntl
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import chdb
import pyarrow as pa
from chdb.state.sqlitelike import Connection

from services.store.engine import Answer, EngineError, Query, want_rows, want_size
from services.store.policy.permissions import quoted
from services.store.policy.query_policy import JUDGE, Insert, Judge
from services.store.policy.reader_views import redirected, view_statements
from services.store.policy.sql_statements import FILTERS, lifted
from services.store.settings import StoreSettings, admin_bounds, bounds
from services.store.tables import DATABASE

CLOSE_TIMEOUT_S = 5.0
MEBIBYTE = 1024 * 1024
ROOM_BYTES = 64 * MEBIBYTE


class FolderTakenError(RuntimeError):
    """Another process has opened the folder."""


class NoRoomError(RuntimeError):
    """The disk of the folder is full or almost full."""


class ChdbEngine:
    """`Engine` on chDB. See services/store/engine.py for the guarantees of its methods."""

    def __init__(
        self,
        settings: StoreSettings,
        judge: Judge = JUDGE,
        connect: Callable[[str], Connection] = chdb.connect,
    ) -> None:
        """Open the folder, creating it if missing. Raises FolderTakenError, NoRoomError.

        judge: decides whether a query may run. connect: opens the engine on a folder. Tests of the
        layers behind them pass others.
        """
        folder = settings.database_dir.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        _want_room(folder)
        self._connect = connect
        self._lock = _own(folder, settings.database_lock)
        shutil.rmtree(settings.scratch_dir, ignore_errors=True)
        settings.scratch_dir.mkdir()
        self._folder = folder
        self._settings = settings
        self._judge = judge
        self._closing = False
        self._running = 0
        self._changed = threading.Condition()
        with _engine_errors():
            self._writer: Connection = connect(str(folder))
        names = [str(row["name"]) for row in self.rows("SELECT name FROM system.settings")]
        self.execute(view_statements(names))

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
        into = f"INSERT INTO {DATABASE}.{table} ({names})"
        with _engine_errors():
            _insert(self._writer, into, "ArrowStream", data.getbuffer())

    def answer(self, query: Query) -> Answer:
        with self._counted(), self._reader() as connection:
            return self._answer(connection, query)

    def cancel(self, query_id: str) -> None:
        with self._reader() as connection, _engine_errors():
            named = f"Settings['log_comment'] = {quoted(query_id)}"
            connection.query(f"KILL QUERY WHERE {named} ASYNC", "Null")

    def release_memory(self) -> None:
        """Its allocator keeps pages that queries and merges needed."""
        with suppress(EngineError):  # a build without jemalloc
            self.execute(["SYSTEM JEMALLOC PURGE"])

    def close(self) -> None:
        """Cancel running queries, wait for them up to five seconds, and close the folder."""
        with self._changed:
            self._closing = True
        with _engine_errors():
            self._writer.query("KILL QUERY WHERE query NOT LIKE 'KILL%'", "Null")
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, CLOSE_TIMEOUT_S)
        self._writer.close()
        self._lock.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """While the block runs, the engine is not closed."""
        with self._changed:
            if self._closing:
                raise EngineError("Code: 202. DB::Exception: The store is shutting down.")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def _reader(self) -> Iterator[Connection]:
        with _engine_errors():
            connection = self._connect(str(self._folder))
        try:
            yield connection
        finally:
            connection.close()

    def _answer(self, connection: Connection, query: Query) -> Answer:
        query = lifted(query, bounds(self._settings, {}))
        query = replace(query, text=redirected(query.text, query.database))
        bounds_of = admin_bounds if query.may_write else bounds
        limits = bounds_of(self._settings, query.settings)
        free = self._judge.settings(query, limits)
        if "limit" in limits:
            free["limit"] = str(limits["limit"])
        with _engine_errors():
            for statement in _bounding(query, limits):
                connection.query(statement, "Null")

            def engine_reads(sql: str, parameters: Mapping[str, str]) -> str:
                with _engine_errors():
                    data = connection.query(sql, "TSVRaw", dict(parameters)).bytes()
                return bytes(data).decode(errors="replace")

            judged = self._judge.statement(query, engine_reads)
            for statement in _preparation(query, free):
                connection.query(statement, "Null")
            started = time.monotonic()
            if judged.insert is not None:
                _insert_data(connection, judged.insert)
                return Answer(b"", query.output_format, 0, 0, time.monotonic() - started)
            result = connection.query(judged.text, query.output_format, dict(judged.parameters))
            if not query.may_write:
                want_size(result.size(), self._settings.query_max_result_bytes)
                want_rows(result.rows_read(), self._settings.query_max_rows)
            return Answer(
                data=result.bytes(),
                output_format=judged.output_format,
                rows_read=result.storage_rows_read(),
                bytes_read=result.storage_bytes_read(),
                elapsed_s=time.monotonic() - started,
                result_rows=result.rows_read(),
                result_bytes=result.bytes_read(),
                rows_written=result.rows_written(),
                bytes_written=result.bytes_written(),
            )


def _bounding(query: Query, limits: Mapping[str, float | str]) -> Iterator[str]:
    """Statements that bound a connection before it judges a query."""
    yield f"USE {_quoted_name(query.database)}"
    bounding = (f"{name} = {quoted(str(v))}" for name, v in limits.items() if name != "limit")
    yield f"SET {', '.join(bounding)}"


def _preparation(query: Query, free: Mapping[str, str]) -> Iterator[str]:
    """Statements that prepare a connection for one judged query. Its settings come after the
    judging, because some of them also apply to what the judge asks. For the reader, the last one
    makes the connection read-only."""
    for name, value in free.items():
        yield f"SET {name} = {value if name == FILTERS else quoted(value)}"
    if query.id:
        yield f"SET log_comment = {quoted(query.id)}"  # chDB has no query ids
    if not query.may_write:
        yield "SET readonly = 1"


def _insert_data(connection: Connection, insert: Insert) -> None:
    """Run an INSERT with inline data."""
    _insert(connection, insert.into, insert.data_format, insert.data, insert.settings)


def _insert(
    connection: Connection,
    into: str,
    data_format: str,
    data: bytes | memoryview,
    settings: str = "",
) -> None:
    """Insert data in one of ClickHouse's formats. into: the statement without its data."""
    with _file_of(data) as path:
        source = f"FROM INFILE {quoted(path)} {settings}"
        connection.query(f"{into} {source} FORMAT {data_format}", "Null")


@contextmanager
def _file_of(data: bytes | memoryview) -> Iterator[str]:
    """The path of a file with these data: in memory on Linux, so that it works on a full disk,
    elsewhere a temporary file."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("insert"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def _quoted_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Convert ChdbError and plain RuntimeError, both of which chDB raises, to EngineError."""
    try:
        yield
    except EngineError:
        raise
    except (chdb.ChdbError, RuntimeError) as error:
        raise EngineError(str(error)) from error


def _want_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise NoRoomError(
            f"the disk of {folder} has {free // MEBIBYTE} MiB of free space;"
            f" the store needs {ROOM_BYTES // MEBIBYTE} to start"
        )


def _own(folder: Path, path: Path) -> IO[str]:
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise FolderTakenError(f"another process owns {folder}") from error
    return lock
