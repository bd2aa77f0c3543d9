"""The rebuild of the projection in ClickHouse, as the verb `rebuild` requests and shows it."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import TypedDict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.runtime.clickhouse import QueryError, StoreUrl, answer_of_store

POLL_S = 0.5


class TableStatus(TypedDict):
    """A table before and after. equal: whether its digest is unchanged."""

    table: str
    rows_before: int
    rows_after: int
    equal: bool


class RebuildAnswer(TypedDict):
    """Of a rebuild. state: waiting, running, done or another end; sentence: its result."""

    state: str
    sentence: str
    equal: bool
    tables: list[TableStatus]


def rebuild_tables(url: StoreUrl, force: bool, check_stack: Callable[[], None]) -> RebuildAnswer:
    """Request a rebuild and wait until it is done; returns the store's status.

    `check_stack` is called repeatedly and raises if a part of the stack has died. Raises QueryError
    if the store refuses, without changes, or cannot be reached.
    """
    status = _ask(url, "POST", f"/rebuild?force={int(force)}")
    while status["state"] in ("waiting", "running"):
        time.sleep(POLL_S)
        check_stack()
        status = _ask(url, "GET", "/rebuild")
    if status["state"] != "done":
        raise QueryError(status["sentence"] or "The store did not finish the rebuild; see its log.")
    return status


def show_rebuild(console: Console, status: RebuildAnswer) -> None:
    """Rows of every table before and after, and the result of the comparison."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("table", no_wrap=True)
    for column in ("rows before", "rows after", "digest"):
        table.add_column(column, justify="right")
    for row in status["tables"]:
        same = "equal" if row["equal"] else Text("different", "red")
        table.add_row(row["table"], f"{row['rows_before']:,}", f"{row['rows_after']:,}", same)
    console.print(table)
    console.print(status["sentence"], soft_wrap=True)


def _ask(url: StoreUrl, method: str, path: str) -> RebuildAnswer:
    headers = url.headers("admin")
    request = urllib.request.Request(f"{url}{path}", headers=headers, method=method)
    status: RebuildAnswer = json.loads(answer_of_store(url, request))
    return status
