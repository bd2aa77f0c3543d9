"""Carries out the operations of a Python program and prints a line of JSON for each.

Standard library only: every program runs in an environment of its own.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Task = dict[str, Any]
Query = Callable[[str], Iterable[Iterable[Any]]]


def report(operations: Mapping[str, Callable[[], Any]]) -> None:
    """Carry out each operation; an exception is its detail."""
    for name, operation in operations.items():
        try:
            line = {"operation": name, "ok": True, "detail": operation()}
        except Exception as error:
            line = {"operation": name, "ok": False, "detail": f"{type(error).__name__}: {error}"}
        print(json.dumps(line), flush=True)


def read_task() -> Task:
    """The task on standard input."""
    found: Task = json.load(sys.stdin)
    return found


def refusal(operation: Callable[[], Any]) -> str:
    """The text of the exception that an operation raises. Raises AssertionError if it does not."""
    try:
        found = operation()
    except Exception as error:
        return str(error)
    raise AssertionError(f"it was not refused: {found!r}")


def names(query: Query, queries: Iterable[str]) -> list[str]:
    """What the first columns of several queries have. Raises the first error, with its query."""
    found: dict[str, None] = {}
    for sql in queries:
        try:
            rows = list(query(sql))
        except Exception as error:
            raise RuntimeError(f"{sql}: {error}") from error
        found |= dict.fromkeys(str(next(iter(row))) for row in rows)
    return list(found)


def trees(task: Task, query: Query) -> dict[str, Callable[[], list[str]]]:
    """An operation for each tree of the task."""

    def of(queries: list[str]) -> Callable[[], list[str]]:
        return lambda: names(query, queries)

    return {operation: of(queries) for operation, queries in task["trees"].items()}


def rows_of_views(task: Task, count: Callable[[str], int]) -> dict[str, int]:
    """The number of rows of each view. count: runs a query and reads all of its values."""
    found = {}
    for view, sql in task["views"].items():
        try:
            found[view] = count(sql)
        except Exception as error:
            raise RuntimeError(f"{view}: {error}") from error
    return found


def compared(values: Iterable[Any]) -> list[str | None]:
    """Values as text, None for NULL."""
    return [None if value is None else str(value) for value in values]
