"""join with custom state."""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, StageSpec
from services.spark_pipeline.stages.inputs import Inputs
from services.spark_pipeline.stages.state.columns import Made, remembered, types_of
from services.spark_pipeline.stages.state.memory import Layout, Memory, Place
from services.spark_pipeline.stages.state.processor import with_memory


def join(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and event time, once each input has one.

    The state is kept per output key, of which there are fewer than join keys.
    """
    place = tuple(key for key in stage.keys if key not in (stage.key, inputs.event_time))
    kept = remembered(stage, stage.aggregates, place, inputs)
    made = [one.column for one in stage.aggregates]
    fields = ["event_ms bigint", *types_of(stage, place, inputs), *types_of(stage, made, inputs)]
    rule = partial(joined, layout=kept.layout, made=kept.made)
    group = (RUN_ID, stage.key)
    found = with_memory(rows, group, kept, rule, fields, keep_s=keep_s)
    return found.withColumn(inputs.joined_time, F.timestamp_millis("event_ms"))


def joined(
    memory: Memory, new: list[Place], layout: Layout, made: tuple[Made, ...]
) -> Iterator[tuple[object, ...]]:
    """Newly completed places: the place, and the aggregates over its records."""
    for place in dict.fromkeys(new):
        row = memory[place]
        if layout.is_whole(row):
            yield (*place, *(one.of([row]) for one in made))
