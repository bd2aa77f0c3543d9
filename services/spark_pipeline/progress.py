"""Spark's progress reports as lines of the contract."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from services.runtime.program import Voice

RECENT_UPDATES = 16  # reports that Spark keeps per query for the next look


def progress_fields(progress: dict[str, Any], counts_rows: bool = True) -> dict[str, Any]:
    """Fields of a line of progress from Spark's JSON of one progress report.

    counts_rows: whether its state store does; one that does not reports 0 rows, whatever it has.
    """
    state = progress.get("stateOperators", [])
    rows = sum(part["numRowsTotal"] for part in state) if state and counts_rows else None
    watermark = progress.get("eventTime", {}).get("watermark")
    return {
        "stage": progress["name"],
        "batch_id": progress["batchId"],
        "input_rows": progress["numInputRows"],
        "input_rows_per_second": progress.get("inputRowsPerSecond"),
        "processed_rows_per_second": progress.get("processedRowsPerSecond"),
        "batch_duration_ms": progress.get("batchDuration"),
        "state_rows": rows,
        "state_bytes": sum(part["memoryUsedBytes"] for part in state) if state else None,
        "watermark": epoch_ms(watermark) if watermark else None,
        "detail": progress,
    }


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of Spark's ISO 8601 time in UTC."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class ProgressReporter:
    """Says one line per progress report of the queries it is asked to look at.

    It looks instead of listening: Spark's Python listener reads every field of every report by a
    call into the JVM of its own, a seventh of all processor time of short micro-batches.
    """

    def __init__(self, voice: Voice, counts_rows: bool = True) -> None:
        self._voice = voice
        self._counts_rows = counts_rows
        self._newest: dict[str, str] = {}

    def report(self, queries: Sequence[StreamingQuery]) -> None:
        """Say the reports that are new since the last look (at most RECENT_UPDATES each)."""
        for query in queries:
            last = query.lastProgress
            if last is not None and last["timestamp"] != self._newest.get(query.name):
                self._say_new(query)

    def _say_new(self, query: StreamingQuery) -> None:
        newest = self._newest.get(query.name, "")
        for progress in (json.loads(each.json) for each in query.recentProgress):
            if progress["timestamp"] > newest:
                self._voice.progress(**progress_fields(progress, self._counts_rows))
                self._newest[query.name] = progress["timestamp"]
