"""Watches the queries of a driver: when they are ready, and when one has ended."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

WATCH_INTERVAL_S = 0.5
INITIALISED = (
    "Processing",
    "Waiting",
    "Running",
)  # prefixes of the status of a query that reads its sources
REASON_CHARACTERS = 600
MESSAGE_ENDS = ("at ", "===", "JVM stacktrace", "Driver stacktrace")


@dataclass(frozen=True)
class Failure:
    """A query that ended without being stopped."""

    stage: str
    reason: str


def watch(
    queries: list[StreamingQuery],
    stop: threading.Event,
    say_ready: Callable[[], None],
    report: Callable[[], None],
) -> Failure | None:
    """Call `say_ready` once every query reads its sources, and `report` at every poll.

    Returns None when `stop` is set, or the first failure.
    """
    waiting_for = list(queries)
    while not stop.wait(WATCH_INTERVAL_S):
        report()
        ended = next((query for query in queries if not query.isActive), None)
        if ended is not None:
            return Failure(ended.name or "", reason_of(ended.exception()))
        if waiting_for:
            waiting_for = [query for query in waiting_for if not is_initialised(query.status)]
            if not waiting_for:
                say_ready()
    return None


def is_initialised(status: dict[str, Any] | None) -> bool:
    """Whether a query with this status has its offsets and is processing or waiting for data."""
    return status is not None and str(status["message"]).startswith(INITIALISED)


def reason_of(error: StreamingQueryException | None) -> str:
    """Why a query ended, in one line."""
    if error is None:
        return "the query ended without an exception"
    return one_line(str(error))


def one_line(text: str) -> str:
    """An engine's message in one line of at most 600 characters, without stack trace and plan."""
    lines = (line.strip() for line in text.splitlines())
    message = takewhile(lambda line: not line.startswith(MESSAGE_ENDS), filter(None, lines))
    return " ".join(message)[:REASON_CHARACTERS]
