"""The input columns that a stage keeps in its state, and the aggregates over them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.domain import SEQUENCE, Aggregate, Function, StageSpec
from services.spark_pipeline.stages.inputs import Inputs
from services.spark_pipeline.stages.state.memory import Layout, Row
from services.spark_pipeline.wire import fields_of, is_nullable, spark_type


@dataclass(frozen=True)
class Made:
    """An output column: a function of columns of the remembered rows, by index."""

    function: Function
    numbers: tuple[int, ...]

    def of(self, rows: Sequence[Row]) -> Any:
        """Its value, None without rows."""
        return over(self.function, [row[n] for row in rows for n in self.numbers])


@dataclass(frozen=True)
class Remembered:
    """State definition of a stage: columns, layout, and aggregates over them."""

    columns: tuple[Column, ...]
    layout: Layout
    made: tuple[Made, ...]


def remembered(
    stage: StageSpec, aggregates: Sequence[Aggregate], place: Sequence[str], inputs: Inputs
) -> Remembered:
    """The input columns that a stage needs.

    place: the columns that, with the event time, distinguish records of one input.
    """
    numbers: dict[str, int] = {}
    columns = [F.unix_millis(inputs.event_time)]
    for name in place:
        numbers[name] = len(columns)
        columns.append(F.col(name))
    most = len(columns) if stage.complete else None
    if stage.complete:
        columns.append(F.col(stage.complete.column))
    sources = list(dict.fromkeys(of for one in aggregates for of in one.of))
    for source in [*sources, *_markers(sources, place, inputs)]:
        if _column(source) not in place:
            numbers[source] = len(columns)
            columns.append(inputs.column([source]))
    layout = Layout(
        1 + len(place), tuple(_first_of(name, numbers, inputs) for name in inputs.names), most
    )
    made = [Made(one.function, tuple(_number(of, numbers) for of in one.of)) for one in aggregates]
    return Remembered(tuple(columns), layout, tuple(made))


def types_of(stage: StageSpec, columns: Sequence[str], inputs: Inputs) -> list[str]:
    """`NAME TYPE` of columns of the stage's record."""
    kinds = fields_of(stage.record, inputs.domain.codec)
    return [f"{name} {spark_type(kinds[name])}" for name in columns]


_OVER: dict[Function, Callable[[Sequence[Any]], Any]] = {
    "first": lambda values: values[0],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "count_distinct": lambda values: len(set(values)),
}


def over(function: Function, given: Sequence[Any]) -> Any:
    """Apply a function to the non-null values; None without values, except for counts."""
    values = [value for value in given if value is not None]
    if not values and not function.startswith("count"):
        return None
    return _OVER[function](values)


def _markers(sources: Sequence[str], place: Sequence[str], inputs: Inputs) -> list[str]:
    """A never-null column for each input without one among the remembered columns."""
    return [
        f"{name}.{SEQUENCE}"
        for name in inputs.names
        if not any(
            _tells(source, name, inputs) for source in sources if _column(source) not in place
        )
    ]


def _tells(source: str, name: str, inputs: Inputs) -> bool:
    """Whether a source is non-null exactly if the input has a record."""
    of, _, column = source.partition(".")
    fields = inputs.fields(name)
    return of == name and column in fields and not is_nullable(fields[column])


def _first_of(name: str, numbers: dict[str, int], inputs: Inputs) -> int:
    return next(number for source, number in numbers.items() if _tells(source, name, inputs))


def _number(source: str, numbers: dict[str, int]) -> int:
    """Index of a source; columns of the place have one index, as their value is shared."""
    return numbers.get(_column(source), numbers.get(source, -1))


def _column(source: str) -> str:
    return source.rpartition(".")[2]
