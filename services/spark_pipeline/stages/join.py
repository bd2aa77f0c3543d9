"""join: one record of each input with the same keys and event time."""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, StageSpec
from services.spark_pipeline.stages.functions import over_group
from services.spark_pipeline.stages.inputs import Inputs


def join(rows: DataFrame, stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Input rows → one row per keys and event time, once each input has one.

    Uses an aggregation, because real-time mode does not support stream-stream joins.
    """
    made = [over_group(one.function, inputs.column(one.of)) for one in stage.aggregates]
    columns = [each.alias(one.column) for each, one in zip(made, stage.aggregates, strict=True)]
    presence, markers = found_inputs(stage, inputs, inputs.names)
    return (
        rows.groupBy(*dict.fromkeys((RUN_ID, *stage.keys, inputs.event_time)))
        .agg(*columns, *markers)
        .where(presence)
        .withColumnRenamed(inputs.event_time, inputs.joined_time)
    )


def found_inputs(
    stage: StageSpec, inputs: Inputs, names: tuple[str, ...]
) -> tuple[Column, list[Column]]:
    """A condition that all named inputs have a record in a group, and the extra aggregates that it
    needs."""
    conditions, markers = [F.lit(True)], []
    for name in names:
        column = inputs.found_by(stage, name)
        if column is None:
            column = f"found:{name}"
            markers.append(F.max(inputs.marker(name)).alias(column))
        conditions.append(F.col(column).isNotNull())
    return reduce(and_, conditions), markers
