"""The verb `rebuild`: has the store drop its projection and make it again from the bus."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from services.runtime.clickhouse import QueryError, StoreUrl, answer_of_store

POLL_S = 0.5


def rebuild(url: StoreUrl, force: bool, check_stack: Callable[[], None]) -> dict[str, Any]:
    """Ask for a rebuild and wait for its end; returns what the store says of it.

    `check_stack` is called all the time and raises when a part of the stack has died. Raises
    QueryError when the store refuses, with nothing done, or cannot be asked.
    """
    status = _ask(url, "POST", f"/rebuild?force={int(force)}")
    while status["state"] in ("waiting", "running"):
        time.sleep(POLL_S)
        check_stack()
        status = _ask(url, "GET", "/rebuild")
    if status["state"] != "done":
        raise QueryError(status["sentence"] or "The store has not rebuilt; see its log.")
    return status


def show_rebuild(console: Console, status: dict[str, Any]) -> None:
    """Rows of every table before and after, and what the comparison came to."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("table", no_wrap=True)
    for column in ("rows before", "rows after", "digest"):
        table.add_column(column, justify="right")
    for row in status["tables"]:
        same = "equal" if row["equal"] else "[red]different[/red]"
        table.add_row(row["table"], f"{row['rows_before']:,}", f"{row['rows_after']:,}", same)
    console.print(table)
    console.print(status["sentence"], soft_wrap=True)


def _ask(url: StoreUrl, method: str, path: str) -> dict[str, Any]:
    headers = url.headers("admin")
    request = urllib.request.Request(f"{url}{path}", headers=headers, method=method)
    found: dict[str, Any] = json.loads(answer_of_store(url, request))
    return found
