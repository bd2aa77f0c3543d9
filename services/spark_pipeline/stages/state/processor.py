"""transformWithState around a pure function: state of one site in, rows to publish out."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from services.spark_pipeline.stages.state.memory import (
    Memory,
    Observation,
    Place,
    forget,
    remember,
)

OBSERVATION = "lane string, num_lanes int, observed_ms bigint, flow int, speed double"
Rule = Callable[[Memory, list[Place]], Iterable[tuple[object, ...]]]


def with_memory(observations: DataFrame, rule: Rule, fields: str, keep_s: int) -> DataFrame:
    """Observations → run_id, measurement_id and `fields` of the rows that `rule` gives.

    keep_s: how far behind a site's own newest event time its observations are kept. The state
    bounds itself: it needs neither watermark nor timers, and a site that falls silent keeps at
    most what it had.
    """
    return (
        observations.select(
            "run_id",
            "measurement_id",
            "lane",
            "num_lanes",
            F.unix_millis("observed_at").alias("observed_ms"),
            F.col("flow_vehicles_per_hour").alias("flow"),
            F.col("speed_km_per_hour").alias("speed"),
        )
        .groupBy("run_id", "measurement_id")
        .transformWithState(
            statefulProcessor=Remembering(rule, [f.split()[0] for f in fields.split(", ")], keep_s),
            outputStructType=f"run_id string, measurement_id string, {fields}",
            outputMode="Update",
            timeMode="None",
        )
    )


class Remembering(StatefulProcessor):  # type: ignore[misc]  # pyspark leaves it untyped
    """Reads the memory of a site, adds its new observations, publishes what the rule gives, and
    writes the memory back: two calls to the state store per site and batch."""

    def __init__(self, rule: Rule, names: list[str], keep_s: int) -> None:
        self._rule = rule
        self._names = names
        self._keep_ms = 1000 * keep_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: one row per event time and lane."""
        self._state: ListState = handle.getListState("observations", OBSERVATION)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """The rows to publish for one site after one batch."""
        kept = (Observation(*row) for row in self._state.get())
        memory: Memory = {(row.observed_ms, row.lane): row for row in kept}
        new = (Observation(*(row[name] for name in Observation._fields)) for row in rows)
        found = list(self._rule(memory, remember(memory, new, self._keep_ms)))
        forget(memory, self._keep_ms)
        self._state.put([tuple(row) for row in memory.values()])
        head = {"run_id": key[0], "measurement_id": key[1]}
        for fields in found:
            yield Row(**head, **dict(zip(self._names, fields, strict=True)))

    def close(self) -> None:
        """Nothing to close."""
