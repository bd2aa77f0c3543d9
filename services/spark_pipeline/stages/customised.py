"""Stateful kinds with a plain aggregation each, complete when all records are there.

join: one record of each input with the same keys and event time.

aggregate, counted: all records with the same keys in one window, once it is complete.

change, counted: relative changes of the newest part of a window from earlier parts.

A part is a window of the aggregate that the change refers to. It is read from that stage, or
computed from the inputs here.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add, and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import RUN_ID, WINDOW_START, Aggregate, Change, Function, StageSpec, Window
from services.spark_pipeline.stages.rows import Inputs

_OVER_GROUP: dict[Function, Callable[[Column], Column]] = {
    "first": lambda column: F.first(column, ignorenulls=True),
    "sum": F.sum,
    "mean": F.avg,
    "min": F.min,
    "max": F.max,
    "count": F.count,
    "count_distinct": lambda column: F.size(F.collect_set(column)),
}
_MOST = "complete:most"


def over_group(function: Function, column: Column) -> Column:
    """Aggregate over all rows of a group; null values do not count."""
    return _OVER_GROUP[function](column)


def over_values(function: Function, values: Sequence[Column]) -> Column:
    """Aggregate over values of one row, such as a pair; first: in the given order."""
    if function in ("first", "min", "max"):
        choose = {"first": F.coalesce, "min": F.least, "max": F.greatest}[function]
        return choose(*values) if len(values) > 1 else values[0]
    if function == "count_distinct":
        return F.size(F.array_distinct(F.array_compact(F.array(*values))))
    counted = reduce(add, (value.isNotNull().cast("int") for value in values))
    total = reduce(add, (F.coalesce(value, F.lit(0)) for value in values))
    if function == "count":
        return counted
    return F.when(counted > 0, total) if function == "sum" else F.try_divide(total, counted)


def join(rows: DataFrame, stage: StageSpec, inputs: Inputs) -> DataFrame:
    """Input rows → one row per keys and event time, once each input has one.

    Uses an aggregation, because real-time mode does not support stream-stream joins.
    """
    values = [over_group(item.function, inputs.column(item.of)) for item in stage.aggregates]
    columns = [each.alias(item.column) for each, item in zip(values, stage.aggregates, strict=True)]
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
                over_group(each.function, inputs.column(each.of)).alias(each.column)
                for each in stage.aggregates
                if not counts_once(each, stage)
            ),
        )
        .where(reduce(and_, (F.col(f"count:{name}") == due for name in inputs.names)))
        .select(
            "*",
            *(
                F.col(_MOST).alias(each.column)
                for each in stage.aggregates
                if counts_once(each, stage)
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


def counts_once(spec: Aggregate, stage: StageSpec) -> bool:
    """Whether an aggregate counts distinct values of what a record is counted once per: in a
    complete window that equals `complete.column`, which is cheaper."""
    columns = {source.split(".")[-1] for source in spec.of}
    return spec.function == "count_distinct" and columns == set(stage.once_per)


def change(rows: DataFrame, stage: StageSpec, base: StageSpec, inputs: Inputs) -> DataFrame:
    """Input rows → one row per keys and window, once every part of it is complete.

    base: the aggregate that the stage refers to. The parts of a window are the windows of `base`.
    """
    assert stage.window is not None
    newest = stage.window.parts - 1
    parts = range(stage.window.parts)
    return (
        rows.withColumn("window", windows(inputs.event_time, stage.window))
        .withColumn("part", part(inputs.event_time, stage.window.slide_s))
        .groupBy(RUN_ID, *stage.keys, "window")
        .agg(
            *(each for number in parts for each in _counts(number, stage, inputs)),
            *(each for number in parts for each in _values(number, newest, stage, base, inputs)),
        )
        .where(reduce(and_, (_is_complete(number, stage, inputs) for number in parts)))
        .select("*", *bounds(), *changes(stage.changes))
    )


def change_of_windows(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Outputs of the aggregate → one row per keys and window, once every part has arrived."""
    assert stage.window is not None
    newest = stage.window.parts - 1
    number = F.col("part").cast("int")
    return (
        rows.withColumn("window", windows(WINDOW_START, stage.window))
        .withColumn("part", part(WINDOW_START, stage.window.slide_s))
        .groupBy(RUN_ID, *stage.keys, "window")
        # One bit per part, so that a duplicate output counts once.
        .agg(
            F.bit_or(F.call_function("shiftleft", F.lit(1).cast("bigint"), number)).alias("parts"),
            *values_of_parts(stage, newest),
        )
        .where(F.col("parts") == F.lit(2**stage.window.parts - 1))
        .select(RUN_ID, *stage.keys, *bounds(), *changes(stage.changes))
    )


def values_of_parts(stage: StageSpec, newest: int) -> list[Column]:
    """The required values of each part, from one output of the aggregate per part."""
    return [
        F.max(F.when(F.col("part") == newest - age, F.col(of))).alias(value(of, age))
        for of in dict.fromkeys(each.of for each in stage.changes)
        for age in sorted(ages_of(stage, of))
    ]


def part(event_time: str, slide_s: int) -> Column:
    """Index of the part of the column `window` that contains an event time, from 0, oldest
    first."""
    into_window_us = F.unix_micros(event_time) - F.unix_micros("window.start")
    return F.floor(into_window_us / F.lit(slide_s * 1_000_000))


def value(of: str, age: int) -> str:
    """The column with an aggregate's value, `age` parts before the newest."""
    return f"{of}:{age}"


def ages_of(stage: StageSpec, of: str) -> set[int]:
    """Ages, in parts before the newest, for which a column of the aggregate is needed."""
    result = {each.back for each in stage.changes if each.of == of}
    return result | {0} if result else result


def changes(wanted: Iterable[Change]) -> list[Column]:
    """(new - old) / old; null where old is 0, for which ANSI division would stop the query."""
    return [
        F.try_divide(F.col(value(each.of, 0)) - old, old).alias(each.column)
        for each in wanted
        for old in (F.col(value(each.of, each.back)),)
    ]


def _values(
    number: int, newest: int, stage: StageSpec, base: StageSpec, inputs: Inputs
) -> list[Column]:
    """The values of one part that the changes need."""
    age = newest - number
    return [
        over_group(each.function, _in_part(number, inputs.column(each.of))).alias(
            value(each.column, age)
        )
        for each in base.aggregates
        if age in ages_of(stage, each.column)
    ]


def _counts(number: int, stage: StageSpec, inputs: Inputs) -> list[Column]:
    assert stage.complete is not None
    # Per part, not per window: the number of records may change.
    most = F.max(_in_part(number, F.col(stage.complete.column))).alias(f"complete:{number}")
    return [
        most,
        *(
            F.count(_in_part(number, inputs.marker(name))).alias(f"count:{name}:{number}")
            for name in inputs.names
        ),
    ]


def _is_complete(number: int, stage: StageSpec, inputs: Inputs) -> Column:
    assert stage.complete is not None
    assert stage.window is not None
    due = F.col(f"complete:{number}") * F.lit(stage.window.slide_s // stage.complete.every_s)
    return reduce(and_, (F.col(f"count:{name}:{number}") == due for name in inputs.names))


def _in_part(number: int, column: Column) -> Column:
    return F.when(F.col("part") == number, column)
