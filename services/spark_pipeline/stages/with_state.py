"""Stateful kinds with custom state: transformWithState in Python.

Every stage keeps the same state per key, its recent records by event time (`state_memory.py`). A
stage is one pure function from that memory and its changes to the output rows. Duplicates count
once, as in the ledger.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, SEQUENCE, StageSpec
from services.spark_pipeline.stages.decode import Inputs
from services.spark_pipeline.stages.state_memory import (
    Layout,
    Made,
    Memory,
    Place,
    Rule,
    StateDefinition,
    complete_rows,
    remembered,
    types_of,
    with_memory,
)

# An aggregate column, and the age of the old value in parts before the newest.
Compared = tuple[Made, int]


def aggregate(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and window, once each input has sent all its records."""
    kept = remembered(stage, stage.aggregates, stage.once_per or (SEQUENCE,), inputs)
    spans = spans_of(stage)
    rule = partial(complete_windows, layout=kept.layout, aggregates=kept.aggregates, spans=spans)
    return of_windows(
        rows,
        stage,
        kept,
        rule,
        [each.column for each in stage.aggregates],
        inputs=inputs,
        keep_s=keep_s,
    )


@dataclass(frozen=True)
class Spans:
    """Milliseconds of event time: size and slide of a window, and the interval in which each record
    occurs once."""

    size_ms: int
    slide_ms: int
    every_ms: int = 1000

    def starts(self, new: list[Place]) -> list[int]:
        """Sorted starts of the windows that contain one of these places."""
        touched = {place[0] - place[0] % self.slide_ms for place in new}
        back = range(0, self.size_ms, self.slide_ms)
        return sorted({last - each for last in touched for each in back})


def spans_of(stage: StageSpec) -> Spans:
    """Spans of a stage whose windows are complete by count."""
    assert stage.window is not None
    assert stage.complete is not None
    size_s, slide_s, every_s = stage.window.size_s, stage.window.slide_s, stage.complete.every_s
    return Spans(1000 * size_s, 1000 * slide_s, 1000 * every_s)


def of_windows(
    rows: DataFrame,
    stage: StageSpec,
    kept: StateDefinition,
    rule: Rule,
    columns: Sequence[str],
    *,
    inputs: Inputs,
    keep_s: int,
) -> DataFrame:
    """Input rows → keys, window start and end, and the `columns` of a rule's rows, which begin with
    the window start. keep_s: how long records are kept beyond the length of a window."""
    size_ms = spans_of(stage).size_ms
    fields = ["window_start_ms bigint", *types_of(stage, columns, inputs)]
    keep_s += size_ms // 1000
    result = with_memory(rows, (RUN_ID, *stage.keys), kept, rule, fields, keep_s=keep_s)
    start = F.col("window_start_ms")
    return result.select(
        "*",
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(start + size_ms).alias("window_end"),
    )


def complete_windows(
    memory: Memory,
    new: list[Place],
    layout: Layout,
    aggregates: tuple[Made, ...],
    spans: Spans,
) -> Iterator[tuple[object, ...]]:
    """Windows completed by the new places: start, and the aggregates."""
    for start_ms in spans.starts(new):
        rows = complete_rows(memory, start_ms, spans.size_ms, layout, spans.every_ms)
        if rows:
            yield (start_ms, *(each.of(rows) for each in aggregates))


def join(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and event time, once each input has one.

    The state is kept per output key, of which there are fewer than join keys.
    """
    place = tuple(key for key in stage.keys if key not in (stage.key, inputs.event_time))
    kept = remembered(stage, stage.aggregates, place, inputs)
    names = [each.column for each in stage.aggregates]
    fields = ["event_ms bigint", *types_of(stage, place, inputs), *types_of(stage, names, inputs)]
    rule = partial(joined, layout=kept.layout, aggregates=kept.aggregates)
    group = (RUN_ID, stage.key)
    result = with_memory(rows, group, kept, rule, fields, keep_s=keep_s)
    return result.withColumn(inputs.joined_time, F.timestamp_millis("event_ms"))


def joined(
    memory: Memory, new: list[Place], layout: Layout, aggregates: tuple[Made, ...]
) -> Iterator[tuple[object, ...]]:
    """Newly completed places: the place, and the aggregates over its records."""
    for place in dict.fromkeys(new):
        row = memory[place]
        if layout.is_whole(row):
            yield (*place, *(each.of([row]) for each in aggregates))


def change(
    rows: DataFrame, stage: StageSpec, base: StageSpec, inputs: Inputs, keep_s: int
) -> DataFrame:
    """Input rows → one row per keys and window, once every part of it is complete.

    base: the aggregate that the stage refers to. The parts of a window are the windows of `base`.
    """
    named = {each.of for each in stage.changes}
    aggregates = [item for item in base.aggregates if item.column in named]
    kept = remembered(stage, aggregates, base.once_per or (SEQUENCE,), inputs)
    by_name = dict(zip((item.column for item in aggregates), kept.aggregates, strict=True))
    compared = tuple((by_name[each.of], each.back) for each in stage.changes)
    spans = spans_of(stage)
    rule = partial(changed_windows, layout=kept.layout, compared=compared, spans=spans)
    return of_windows(
        rows,
        stage,
        kept,
        rule,
        [each.column for each in stage.changes],
        inputs=inputs,
        keep_s=keep_s,
    )


def changed_windows(
    memory: Memory,
    new: list[Place],
    layout: Layout,
    compared: tuple[Compared, ...],
    spans: Spans,
) -> Iterator[tuple[object, ...]]:
    """Windows completed by the new places: start, and the changes."""
    for start_ms in spans.starts(new):
        parts = [
            complete_rows(memory, part_ms, spans.slide_ms, layout, spans.every_ms)
            for part_ms in range(start_ms, start_ms + spans.size_ms, spans.slide_ms)
        ]
        if all(parts):
            changes = (
                relative_change(aggregate.of(parts[-1]), aggregate.of(parts[-1 - back]))
                for aggregate, back in compared
            )
            yield (start_ms, *changes)


def relative_change(new: float, old: float) -> float | None:
    """(new - old) / old; None where old is 0."""
    return None if old == 0 else (new - old) / old
