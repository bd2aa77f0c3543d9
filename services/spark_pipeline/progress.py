"""Reports Spark's query progress as contract lines; between batches, consumer metrics."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from services.runtime.program import Voice
from services.spark_pipeline.meters import ConsumerMeters

METERS_INTERVAL_S = 1.0
NO_BATCH = -1  # of a line without a single batch
RECENT_UPDATES = 16  # reports that Spark keeps per query


def progress_fields(progress: dict[str, Any], counts_rows: bool = True) -> dict[str, Any]:
    """Fields of a progress line from the JSON of one Spark progress report.

    counts_rows: whether the state store counts rows; if not, it always reports 0.
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
        "lag_records": lag_of(progress),
        "detail": progress,
    }


def lag_of(progress: dict[str, Any]) -> int | None:
    """Records that were on the topics of all sources and not read by the batch; None if a source
    does not report its end offsets."""
    sources, lag = progress.get("sources"), 0
    if not sources:
        return None
    for source in sources:
        ends, newest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(ends, dict) or not isinstance(newest, dict):
            return None
        for topic, offsets in newest.items():
            read = ends.get(topic, {})
            lag += sum(max(0, offset - read.get(number, 0)) for number, offset in offsets.items())
    return lag


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time in UTC, as Spark writes it."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class ProgressReporter:
    """Writes one line per progress report of the given queries.

    It polls instead of using Spark's Python listener, which calls the JVM for every field of every
    report: a seventh of all processor time with short micro-batches.

    meters: consumer metrics of queries with long batches, read once a second.
    """

    def __init__(
        self,
        voice: Voice,
        counts_rows: bool = True,
        meters: ConsumerMeters | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._voice = voice
        self._counts_rows = counts_rows
        self._meters = meters
        self._clock_s = clock_s
        self._read_s = clock_s()
        self._metered: set[str] = set()
        self._newest: dict[str, str] = {}

    def report(self, queries: Sequence[StreamingQuery]) -> None:
        """Write the reports since the previous call (at most RECENT_UPDATES each), and the
        meters."""
        for query in queries:
            last = query.lastProgress
            if last is not None and last["timestamp"] != self._newest.get(query.name):
                self._say_new(query)
        passed_s = self._clock_s() - self._read_s
        if self._meters is not None and passed_s >= METERS_INTERVAL_S:
            self._read_s += passed_s
            self._say_meters(self._meters, passed_s)

    def _say_meters(self, meters: ConsumerMeters, passed_s: float) -> None:
        for stage, reading in meters.read().items():
            self._metered.add(stage)
            self._voice.progress(
                stage=stage,
                batch_id=NO_BATCH,
                input_rows=reading.rows,
                input_rows_per_second=reading.rows / passed_s,
                lag_records=reading.lag,
            )

    def _say_new(self, query: StreamingQuery) -> None:
        newest = self._newest.get(query.name, "")
        for progress in (json.loads(each.json) for each in query.recentProgress):
            if progress["timestamp"] > newest:
                fields = progress_fields(progress, self._counts_rows)
                if query.name in self._metered:
                    fields["input_rows"] = 0  # already counted by the meters
                self._voice.progress(**fields)
                self._newest[query.name] = progress["timestamp"]
