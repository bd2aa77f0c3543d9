"""Spark's progress reports as `results.pipeline` events."""

import json
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from schemas import catalogue
from services.runtime.events import Events


def progress_fields(pipeline: str, progress: dict[str, Any]) -> dict[str, Any]:
    """Fields of `results_pipeline` from Spark's JSON of one progress report."""
    state = progress.get("stateOperators", [])
    watermark = progress.get("eventTime", {}).get("watermark")
    return {
        "pipeline": pipeline,
        "stage": progress["name"],
        "batch_id": progress["batchId"],
        "input_rows": progress["numInputRows"],
        "input_rows_per_second": progress.get("inputRowsPerSecond"),
        "processed_rows_per_second": progress.get("processedRowsPerSecond"),
        "batch_duration_ms": progress.get("batchDuration"),
        "state_rows": sum(part["numRowsTotal"] for part in state) if state else None,
        "state_bytes": sum(part["memoryUsedBytes"] for part in state) if state else None,
        "watermark": epoch_ms(watermark) if watermark else None,
        "detail": json.dumps(progress),
    }


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of Spark's ISO 8601 time in UTC."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class ProgressReporter(StreamingQueryListener):  # type: ignore[misc]
    """Publishes one event per progress report of any query of the session."""

    def __init__(self, events: Events, run_id: str, pipeline: str) -> None:
        self._events = events
        self._run_id = run_id
        self._pipeline = pipeline

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing: the driver says when all are ready."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Publish the report."""
        fields = progress_fields(self._pipeline, json.loads(event.progress.json))
        self._events.publish(catalogue.PIPELINE, self._run_id, **fields)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing: the driver watches its queries itself."""
