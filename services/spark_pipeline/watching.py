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
WAITING = "Waiting"  # for data or for the next trigger: no batch is running
REASON_CHARACTERS = 600
# How Spark's log says that it stops the SparkContext. The queries then fail with an error that
# hides the cause (SPARK-59242).
STOPPING = (
    "uncaught error in thread",
    "Uncaught exception in thread",
    "shutting down SparkContext",
    "stopping SparkContext",
    "Exit as unable to send heartbeats",
)
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
    *,
    has_workers: bool = False,
) -> Failure | None:
    """Call `say_ready` once every query reads its sources, and `report` at every poll. has_workers:
    a query starts Python workers in its first batch, and is not ready before they answer.

    Returns None when `stop` is set, or the first failure.
    """
    waiting_for = list(queries)
    while not stop.wait(WATCH_INTERVAL_S):
        report()
        ended = next((query for query in queries if not query.isActive), None)
        if ended is not None:
            return Failure(ended.name or "", reason_of(ended.exception()))
        if waiting_for:
            waiting_for = [query for query in waiting_for if not is_ready(query, has_workers)]
            if not waiting_for:
                say_ready()
    return None


def is_ready(query: StreamingQuery, has_workers: bool = False) -> bool:
    """Whether a query reads its sources and its Python workers, if it has any, have answered."""
    if not is_initialised(query.status):
        return False
    processes = not str(query.status["message"]).startswith(WAITING)
    return not has_workers or not processes or query.lastProgress is not None


def is_initialised(status: dict[str, Any] | None) -> bool:
    """Whether a query with this status has its offsets and is processing or waiting for data."""
    return status is not None and str(status["message"]).startswith(INITIALISED)


def reason_of(error: StreamingQueryException | None) -> str:
    """Why a query ended, in one line."""
    if error is None:
        return "the query ended without an exception"
    return one_line(str(error))


def cause_of_stop(log: str) -> str:
    """Why Spark stopped its SparkContext, from the driver's log: the first message that says so and
    its exception."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        _, is_error, message = line.partition(" ERROR ")
        if is_error and any(told in message for told in STOPPING):
            following = lines[number + 1 : number + 2]
            exception = [one for one in following if not one[:1].isdigit()]
            return one_line("\n".join([message.partition(": ")[2], *exception]))
    return "its log does not say why"


def one_line(text: str) -> str:
    """An engine's message in one line of at most 600 characters, without stack trace and plan."""
    lines = (line.strip() for line in text.splitlines())
    message = takewhile(lambda line: not line.startswith(MESSAGE_ENDS), filter(None, lines))
    return " ".join(message)[:REASON_CHARACTERS]
