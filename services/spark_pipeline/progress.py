"""Spark's progress reports as lines of the contract; between them, what its consumers say."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from services.runtime.program import Voice
from services.spark_pipeline.meters import ConsumerMeters

METERS_INTERVAL_S = 1.0
NO_BATCH = -1  # of a line that is of no single batch
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
        "lag_records": lag_of(progress),
        "detail": progress,
    }


def lag_of(progress: dict[str, Any]) -> int | None:
    """Records that were on the topics of all sources and that the batch left there; None where a
    source does not say how far its topics go."""
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
    """Epoch milliseconds of Spark's ISO 8601 time in UTC."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class ProgressReporter:
    """Says one line per progress report of the queries it is asked to look at.

    It looks instead of listening: Spark's Python listener reads every field of every report by a
    call into the JVM of its own, a seventh of all processor time of short micro-batches.

    meters: of queries whose batches are long: what they have read, once a second.
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
        """Say the reports that are new since the last look (at most RECENT_UPDATES each), and what
        the meters show."""
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
                    fields["input_rows"] = 0  # they were counted while the batch went on
                self._voice.progress(**fields)
                self._newest[query.name] = progress["timestamp"]
