"""Notices about watches: words, and what is left to the thresholds of a watch. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from schemas import protocol
from schemas.threshold import parse_threshold

Row = dict[str, Any]


def is_of_watch(detail: dict[str, Any]) -> bool:
    """Whether the detail of a conclusion is that of a run of a watch."""
    return "watch" in detail


def title_of(begun: dict[str, Any]) -> str:
    """A run of a watch, given the detail of `watch_begun`: `watch orders, 2026-05-04 03:00 UTC`."""
    begin = datetime.fromtimestamp(begun["start_ms"] / 1000, UTC)
    return f"watch {begun['workload']['name']}, {begin:%Y-%m-%d %H:%M} UTC"


def left_to_thresholds(rows: Iterable[Row]) -> frozenset[str]:
    """Verdicts that a watch limits by a threshold, so that fewer are no problem. rows: the judged
    thresholds of a run."""
    figures = {parse_threshold(row["threshold"]).figure for row in rows}
    if "not_exact" in figures:
        return frozenset(protocol.FAILED_VERDICTS)
    return frozenset(figures & {*protocol.FAILED_VERDICTS})
