"""The functions of aggregates as Spark columns."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.domain import Function

_OVER_GROUP: dict[Function, Callable[[Column], Column]] = {
    "first": lambda column: F.first(column, ignorenulls=True),
    "sum": F.sum,
    "mean": F.avg,
    "min": F.min,
    "max": F.max,
    "count": F.count,
    "count_distinct": lambda column: F.size(F.collect_set(column)),
}


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
