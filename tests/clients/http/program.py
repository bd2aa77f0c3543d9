"""Requests as curl and ClickHouse's ODBC driver send them.

The ODBC driver needs a driver manager and is in no package registry; its requests are those of its
source, version 1.5.4: `POST /query` with a chunked body, a session and its own binary format.
"""

import base64
import http.client
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from reporting import Task, compared, read_task, refusal, report, rows_of_views, trees

Ask = Callable[..., bytes]
Read = Callable[[bytes], list[list[Any]]]


class ServerError(Exception):
    """What the server answered with an error status."""


def odbc(task: Task) -> Ask:
    """Sends a query as the driver does; user and format may be other ones."""
    session = str(uuid.uuid4())

    def ask(sql: str, *, login: str = "", wait_s: float = 60, **parameters: Any) -> bytes:
        given = {
            "default_format": "ODBCDriver2",
            "database": task["database"],
            "session_id": session,
            "cast_keep_nullable": "1",
            "prefer_column_name_to_alias": "1",
        } | parameters
        login = login or f"{task['user']}:{task['password']}"
        headers = {
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
            "Accept-Encoding": "none",
            "User-Agent": "clickhouse-odbc/1.5.4.20260708 (Linux)",
            "Transfer-Encoding": "chunked",
        }
        connection = http.client.HTTPConnection(task["host"], task["port"], timeout=wait_s)
        try:
            body = iter([sql.encode()])
            path = f"/query?{urlencode(given)}"
            connection.request("POST", path, body, headers, encode_chunked=True)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ServerError(f"HTTP status code: {answer.status}: {data.decode()}")
        return data

    return ask


def curl(task: Task) -> Ask:
    """Sends a query with the program curl; the format is JSONCompactEachRow."""

    def ask(sql: str, *, login: str = "", wait_s: float = 60, **parameters: Any) -> bytes:
        given = {"default_format": "JSONCompactEachRow"} | parameters
        url = f"http://{task['host']}:{task['port']}/?{urlencode(given)}"
        login = login or f"{task['user']}:{task['password']}"
        command = ["curl", "--silent", "--show-error", "--fail-with-body", "--user", login]
        command += ["--max-time", str(wait_s), "--data-binary", "@-", url]
        done = subprocess.run(command, input=sql.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise ServerError((done.stdout + done.stderr).decode())
        return done.stdout

    return ask


def read_json(data: bytes) -> list[list[Any]]:
    """The rows of the format JSONCompactEachRow."""
    return [json.loads(line) for line in data.decode().splitlines()]


def read_odbc(data: bytes) -> list[list[Any]]:
    """The rows of the format ODBCDriver2: each is a sequence of texts with 32-bit lengths, -1 for
    NULL. Before them come the number of head rows (names and types), and each with its length."""
    at = 0

    def number() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(data[at - 4 : at], "little", signed=True)

    def text() -> str | None:
        nonlocal at
        length = number()
        if length < 0:
            return None
        at += length
        return data[at - length : at].decode()

    head = [[text() for _ in range(number())] for _ in range(number())]
    rows = []
    while at < len(data):
        rows.append([text() for _ in head[0][1:]])
    return rows


def operations(task: Task, ask: Ask, read: Read) -> dict[str, Callable[[], Any]]:
    """The operations, by queries and a reader of their format."""

    def rows(sql: str, **options: Any) -> list[list[Any]]:
        return read(ask(sql, **options))

    def types() -> dict[str, Any]:
        (first,), (further,) = rows(task["types"]), rows(task["further_types"])
        return {"compared": compared(first), "further": len(further)}

    def stream() -> list[int]:
        numbers = [int(str(row[0])) for row in rows(task["stream"])]
        return [len(numbers), sum(numbers)]

    quoted = task["text"].replace("\\", "\\\\").replace("'", "\\'")
    literals = f"SELECT {task['number']}, '{quoted}'"
    placeholders = "SELECT {odbc_positional_1:Int64}, {odbc_positional_2:String}"
    escaped = task["text"].replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    binding = {"param_odbc_positional_1": task["number"], "param_odbc_positional_2": escaped}
    few = {"max_result_rows": task["limit"], "result_overflow_mode": "break"}

    return {
        "connect_without_password": lambda: int(str(rows("SELECT 1", login="default:")[0][0])),
        "connect_as_reader": lambda: int(str(rows("SELECT 1")[0][0])),
        "version": lambda: rows("SELECT version()")[0][0],
        **trees(task, rows),
        "views": lambda: rows_of_views(task, lambda sql: len(rows(sql))),
        "types": types,
        "client_parameters": lambda: compared(rows(literals)[0]),
        "server_parameters": lambda: compared(rows(placeholders, **binding)[0]),
        "limit": lambda: len(rows("SELECT number FROM numbers(1000000)", **few)),
        "timeout": lambda: refusal(lambda: rows(task["long"], max_execution_time=1)),
        "cancel": lambda: refusal(lambda: rows(task["long"], wait_s=1)),
        "stream": stream,
        "wrong_sql": lambda: refusal(lambda: rows(task["wrong"])),
        "write_refused": lambda: refusal(lambda: rows(task["write"])),
    }


def main() -> None:
    task = read_task()
    way, read = {"odbc": (odbc, read_odbc), "curl": (curl, read_json)}[sys.argv[1]]
    report(operations(task, way(task), read))


if __name__ == "__main__":
    main()
