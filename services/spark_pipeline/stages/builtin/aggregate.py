"""aggregate, built-in: an aggregation over windows of event time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, Aggregate, StageSpec
from services.spark_pipeline.stages.aggregate import bounds, counts_once, windows
from services.spark_pipeline.stages.functions import over_group
from services.spark_pipeline.stages.inputs import Inputs
from services.spark_pipeline.stages.join import found_inputs

WINDOW_TIME = "_window_time"


def aggregate(rows: DataFrame, stage: StageSpec, inputs: Inputs, event_time: str) -> DataFrame:
    """Rows of the inputs or of a stage → one row per keys and window, once the watermark has passed
    its end.

    event_time: the event-time column of the rows.
    """
    assert stage.window is not None
    presence, markers = found_inputs(stage, inputs, _named_inputs(stage, inputs))
    return (
        rows.groupBy(RUN_ID, *stage.keys, windows(event_time, stage.window))
        .agg(
            *(_aggregated(one, stage, inputs).alias(one.column) for one in stage.aggregates),
            *markers,
        )
        .where(presence)
        .select("*", *bounds(), F.window_time("window").alias(WINDOW_TIME))
        .drop("window")
    )


def _named_inputs(stage: StageSpec, inputs: Inputs) -> tuple[str, ...]:
    """The inputs that must have a record in a window: those used by the aggregates."""
    sources = [of for one in stage.aggregates for of in one.of]
    named = {source.split(".")[0] for source in sources if "." in source}
    return tuple(name for name in inputs.names if name in named)


def _aggregated(one: Aggregate, stage: StageSpec, inputs: Inputs) -> Column:
    """Counts all instead of distinct values if each value occurs once per window, which is
    cheaper."""
    column = inputs.column(one.of)
    assert stage.window is not None
    if stage.complete and stage.window.size_s == stage.complete.every_s and counts_once(one, stage):
        is_of_one_input = len(one.of) == 1 and "." in one.of[0]
        return F.count(inputs.marker(one.of[0].split(".")[0]) if is_of_one_input else column)
    return over_group(one.function, column)
