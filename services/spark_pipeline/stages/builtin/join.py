"""join and window_join, built-in: inner joins of streams."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, WINDOW_END, WINDOW_START, StageSpec
from services.spark_pipeline.stages.aggregate import windows
from services.spark_pipeline.stages.builtin.aggregate import WINDOW_TIME
from services.spark_pipeline.stages.functions import over_values
from services.spark_pipeline.stages.inputs import Inputs


def join(frames: Mapping[str, DataFrame], stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Rows by input → one row per combination of records of each with equal keys and event time.

    Event time is one of the equal columns: the tightest interval of a join, which lets Spark drop a
    record once the watermark has passed its event time. A combination is published at once; a
    duplicate record makes one more.
    """
    equal = list(dict.fromkeys((RUN_ID, *stage.keys, inputs.event_time)))
    sources = _sources(stage)
    sides = [
        frames[name].select(*(F.col(each) for each in equal), *_own(name, sources))
        for name in inputs.names
    ]
    joined = reduce(lambda left, right: left.join(right, equal, "inner"), sides)
    made = joined.select(*equal, *_made(stage))
    return made.withColumnRenamed(inputs.event_time, inputs.joined_time)


def window_join(frames: Mapping[str, DataFrame], stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Rows by input → one row per pair of records with equal keys and per window that contains
    both, as soon as both have arrived."""
    assert stage.window is not None
    sources = _sources(stage)
    equal = list(dict.fromkeys((RUN_ID, *stage.keys)))
    event_time = inputs.event_time
    if event_time in equal:
        # Records with the same event time are in the same windows, and the watermark requires a
        # single event-time column.
        sides = [frames[name].select(*equal, *_own(name, sources)) for name in inputs.names]
        joined = _pairs(sides, equal).withColumn("window", windows(event_time, stage.window))
    else:
        sides = [
            frames[name].select(*equal, windows(event_time, stage.window), *_own(name, sources))
            for name in inputs.names
        ]
        joined = _pairs(sides, [*equal, "window"])
    return joined.select(
        *(_plain_time(each) if each == event_time else F.col(each) for each in equal),
        F.col("window.start").alias(WINDOW_START),
        F.col("window.end").alias(WINDOW_END),
        F.window_time("window").alias(WINDOW_TIME),
        *(F.col(_named(source)).alias(name) for name, source in stage.columns.items()),
        *_made(stage),
    )


def _pairs(sides: Sequence[DataFrame], equal: list[str]) -> DataFrame:
    left, right = sides
    return left.join(right, equal, "inner")


def _plain_time(column: str) -> Column:
    """The same time without a watermark."""
    return F.timestamp_micros(F.unix_micros(column)).alias(column)


def _sources(stage: StageSpec) -> list[str]:
    """The distinct `INPUT.COLUMN` names in the columns and aggregates of a stage."""
    named = [*stage.columns.values(), *(of for one in stage.aggregates for of in one.of)]
    return list(dict.fromkeys(named))


def _named(source: str) -> str:
    return source.replace(".", ":")


def _own(name: str, sources: Iterable[str]) -> list[Column]:
    """The columns of one input that a join uses."""
    found = (source.split(".") for source in sources)
    return [F.col(column).alias(f"{of}:{column}") for of, column in found if of == name]


def _made(stage: StageSpec) -> list[Column]:
    return [
        over_values(one.function, [F.col(_named(of)) for of in one.of]).alias(one.column)
        for one in stage.aggregates
    ]
