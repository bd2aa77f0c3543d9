"""change, counted, with custom state."""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame

from schemas.domain import SEQUENCE, StageSpec
from services.spark_pipeline.stages.inputs import Inputs
from services.spark_pipeline.stages.state.aggregate import Spans, of_windows, spans_of
from services.spark_pipeline.stages.state.columns import Made, remembered
from services.spark_pipeline.stages.state.memory import Layout, Memory, Place, complete_rows

# An aggregate column, and the age of the old value in parts before the newest.
Compared = tuple[Made, int]


def change(
    rows: DataFrame, stage: StageSpec, base: StageSpec, inputs: Inputs, keep_s: int
) -> DataFrame:
    """Input rows → one row per keys and window, once every part of it is complete.

    base: the aggregate that the stage refers to. The parts of a window are the windows of `base`.
    """
    named = {each.of for each in stage.changes}
    aggregates = [one for one in base.aggregates if one.column in named]
    kept = remembered(stage, aggregates, base.once_per or (SEQUENCE,), inputs)
    by_name = dict(zip((one.column for one in aggregates), kept.made, strict=True))
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
                relative_change(made.of(parts[-1]), made.of(parts[-1 - back]))
                for made, back in compared
            )
            yield (start_ms, *changes)


def relative_change(new: float, old: float) -> float | None:
    """(new - old) / old; None where old is 0."""
    return None if old == 0 else (new - old) / old
