"""change, built-in: windows over the windows of an aggregate, chained."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, StageSpec
from services.spark_pipeline.stages.aggregate import bounds, windows
from services.spark_pipeline.stages.builtin.aggregate import WINDOW_TIME
from services.spark_pipeline.stages.change import changes, part, values_of_parts


def change(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Rows of the aggregate → one row per keys and window, once the watermark has passed its end.

    Publishes windows whose newest part has data; a change from a part without data is null.
    """
    assert stage.window is not None
    newest = stage.window.parts - 1
    return (
        rows.withColumn("window", windows(WINDOW_TIME, stage.window))
        .withColumn("part", part("window_start", stage.window.slide_s))
        .groupBy(RUN_ID, *stage.keys, "window")
        .agg(F.max("part").alias("newest"), *values_of_parts(stage, newest))
        .where(F.col("newest") == newest)
        .select(
            RUN_ID,
            *stage.keys,
            *bounds(),
            *changes(stage.changes),
            F.window_time("window").alias(WINDOW_TIME),
        )
    )
