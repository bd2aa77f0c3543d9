"""Stateful kinds with Spark's operators: stream-stream joins, and windows closed by the watermark
(append mode).

Each input is a DataFrame with its own watermark: the stage's watermark is the lowest of them, so
that a topic read later than another does not lose its records. Window rows have a column
WINDOW_TIME, the event time for a further window.

A window is published as it is if each of its inputs has a record in it: a sum or mean of nothing is
undefined.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, WINDOW_END, WINDOW_START, Aggregate, StageSpec
from services.spark_pipeline.stages.customised import (
    bounds,
    changes,
    counts_once,
    found_inputs,
    over_group,
    over_values,
    part,
    values_of_parts,
    windows,
)
from services.spark_pipeline.stages.rows import Inputs

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
            *(_aggregated(each, stage, inputs).alias(each.column) for each in stage.aggregates),
            *markers,
        )
        .where(presence)
        .select("*", *bounds(), F.window_time("window").alias(WINDOW_TIME))
        .drop("window")
    )


def _named_inputs(stage: StageSpec, inputs: Inputs) -> tuple[str, ...]:
    """The inputs that must have a record in a window: those used by the aggregates."""
    sources = [of for each in stage.aggregates for of in each.of]
    named = {source.split(".")[0] for source in sources if "." in source}
    return tuple(name for name in inputs.names if name in named)


def _aggregated(spec: Aggregate, stage: StageSpec, inputs: Inputs) -> Column:
    """Counts all instead of distinct values if each value occurs once per window, which is
    cheaper."""
    column = inputs.column(spec.of)
    assert stage.window is not None
    if (
        stage.complete
        and stage.window.size_s == stage.complete.every_s
        and counts_once(spec, stage)
    ):
        is_of_one_input = len(spec.of) == 1 and "." in spec.of[0]
        return F.count(inputs.marker(spec.of[0].split(".")[0]) if is_of_one_input else column)
    return over_group(spec.function, column)


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
    selected = joined.select(*equal, *_made(stage))
    return selected.withColumnRenamed(inputs.event_time, inputs.joined_time)


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
    named = [*stage.columns.values(), *(of for each in stage.aggregates for of in each.of)]
    return list(dict.fromkeys(named))


def _named(source: str) -> str:
    return source.replace(".", ":")


def _own(name: str, sources: Iterable[str]) -> list[Column]:
    """The columns of one input that a join uses."""
    result = (source.split(".") for source in sources)
    return [F.col(column).alias(f"{of}:{column}") for of, column in result if of == name]


def _made(stage: StageSpec) -> list[Column]:
    return [
        over_values(each.function, [F.col(_named(of)) for of in each.of]).alias(each.column)
        for each in stage.aggregates
    ]


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
