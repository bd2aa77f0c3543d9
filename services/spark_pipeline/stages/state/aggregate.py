"""aggregate, counted, with custom state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, SEQUENCE, StageSpec
from services.spark_pipeline.stages.inputs import Inputs
from services.spark_pipeline.stages.state.columns import Made, Remembered, remembered, types_of
from services.spark_pipeline.stages.state.memory import Layout, Memory, Place, complete_rows
from services.spark_pipeline.stages.state.processor import Rule, with_memory


def aggregate(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and window, once each input has sent all its records."""
    kept = remembered(stage, stage.aggregates, stage.once_per or (SEQUENCE,), inputs)
    spans = spans_of(stage)
    rule = partial(complete_windows, layout=kept.layout, made=kept.made, spans=spans)
    return of_windows(
        rows,
        stage,
        kept,
        rule,
        [one.column for one in stage.aggregates],
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
    kept: Remembered,
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
    found = with_memory(rows, (RUN_ID, *stage.keys), kept, rule, fields, keep_s=keep_s)
    start = F.col("window_start_ms")
    return found.select(
        "*",
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(start + size_ms).alias("window_end"),
    )


def complete_windows(
    memory: Memory,
    new: list[Place],
    layout: Layout,
    made: tuple[Made, ...],
    spans: Spans,
) -> Iterator[tuple[object, ...]]:
    """Windows completed by the new places: start, and the aggregates."""
    for start_ms in spans.starts(new):
        rows = complete_rows(memory, start_ms, spans.size_ms, layout, spans.every_ms)
        if rows:
            yield (start_ms, *(one.of(rows) for one in made))
