"""aggregate, counted: all records with the same keys in one window, once it is complete."""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, Aggregate, StageSpec, Window
from services.spark_pipeline.stages.functions import over_group
from services.spark_pipeline.stages.inputs import Inputs

_MOST = "complete:most"


def aggregate(rows: DataFrame, stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Input rows → one row per keys and window, once each input has sent all its records."""
    assert stage.window is not None
    assert stage.complete is not None
    due = F.col(_MOST) * F.lit(stage.window.size_s // stage.complete.every_s)
    return (
        rows.groupBy(RUN_ID, *stage.keys, windows(inputs.event_time, stage.window))
        .agg(
            F.max(stage.complete.column).alias(_MOST),
            *(F.count(inputs.marker(name)).alias(f"count:{name}") for name in inputs.names),
            *(
                over_group(one.function, inputs.column(one.of)).alias(one.column)
                for one in stage.aggregates
                if not counts_once(one, stage)
            ),
        )
        .where(reduce(and_, (F.col(f"count:{name}") == due for name in inputs.names)))
        .select(
            "*",
            *(
                F.col(_MOST).alias(one.column)
                for one in stage.aggregates
                if counts_once(one, stage)
            ),
            *bounds(),
        )
    )


def windows(event_time: str, window: Window) -> Column:
    """The windows that contain an event time, as column `window`."""
    spans = (f"{seconds} seconds" for seconds in (window.size_s, window.slide_s))
    return F.window(event_time, *spans).alias("window")


def bounds() -> tuple[Column, Column]:
    """Start and end of the column `window`, as in outputs."""
    return F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")


def counts_once(one: Aggregate, stage: StageSpec) -> bool:
    """Whether an aggregate counts distinct values of what a record is counted once per: in a
    complete window that equals `complete.column`, which is cheaper."""
    columns = {source.split(".")[-1] for source in one.of}
    return one.function == "count_distinct" and columns == set(stage.once_per)
