"""Stateful kinds with custom state: transformWithState in Python.

Every stage keeps the same state per key, the recent records of its inputs by event time. A stage is
one pure function from that memory and its changes to the output rows. Duplicates count once, as in
the ledger.

A place is an event time and the other values that distinguish records of one input. A row has the
columns of the place and then those of each input, null until its record has arrived.

>>> layout = Layout(place=1, inputs=(1, 2))
>>> memory = {}
>>> remember(memory, [(1000, 60, None)], layout, keep_ms=10_000)
[(1000,)]
>>> remember(memory, [(1000, None, 80.0)], layout, keep_ms=10_000)
[(1000,)]
>>> memory
{(1000,): (1000, 60, 80.0)}

`StateDefinition` are the input columns that a stage keeps, with the aggregates over them.
`with_memory` is transformWithState around a pure function: state of one key in, output rows out.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from pyspark import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import StructType

from schemas.domain import RUN_ID, SEQUENCE, Aggregate, Function, StageSpec
from services.spark_pipeline.stages.rows import Inputs
from services.spark_pipeline.wire import fields_of, is_nullable, spark_type

Row = tuple[Any, ...]
Place = tuple[Any, ...]  # event time in epoch milliseconds, and distinguishing values
Memory = dict[Place, Row]
_OVER: dict[Function, Callable[[Sequence[Any]], Any]] = {
    "first": lambda values: values[0],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "count_distinct": lambda values: len(set(values)),
}
Rule = Callable[[Memory, list[Place]], Iterable[tuple[object, ...]]]
Compared: TypeAlias = "tuple[Made, int]"
"""An aggregate column, and the age of the old value in parts before the newest."""


@dataclass(frozen=True)
class Layout:
    """The columns of a row, by index.

    place: number of leading columns that are the place; event time has index 0. inputs: for each
    input a column that is non-null once its record has arrived. most: the column that keeps its
    largest value, `complete.column`; all others keep the first.
    """

    place: int
    inputs: tuple[int, ...]
    most: int | None = None

    def is_whole(self, row: Row) -> bool:
        """Whether the record of each input has arrived."""
        return all(row[number] is not None for number in self.inputs)


def remember(memory: Memory, rows: Iterable[Row], layout: Layout, keep_ms: int) -> list[Place]:
    """Add the records of one batch, in any order.

    Returns the places at which an input got its first record, in order of arrival. The first record
    of an input is kept, later ones are ignored. Records more than `keep_ms` older than the newest
    of earlier batches are ignored. Within a batch nothing is too old, because in a long batch all
    records of one input may come before those of another.
    """
    oldest_ms = _oldest_ms(memory, keep_ms)
    new = []
    for row in rows:
        if row[0] < oldest_ms:
            continue
        place = row[: layout.place]
        before = memory.get(place)
        if before is None:
            memory[place] = row
            new.append(place)
        elif any(before[number] is None and row[number] is not None for number in layout.inputs):
            memory[place] = _merged(before, row, layout)
            new.append(place)
    return new


def forget(memory: Memory, keep_ms: int) -> None:
    """Remove records more than `keep_ms` older than the newest."""
    oldest_ms = _oldest_ms(memory, keep_ms)
    for place in [place for place in memory if place[0] < oldest_ms]:
        del memory[place]


def _oldest_ms(memory: Memory, keep_ms: int) -> float:
    return max((place[0] for place in memory), default=-math.inf) - keep_ms


def complete_rows(
    memory: Memory, start_ms: int, length_ms: int, layout: Layout, every_ms: int
) -> list[Row]:
    """The rows of a window if all records of each input have arrived, else none."""
    assert layout.most is not None
    end_ms, number = start_ms + length_ms, layout.most
    inside = [row for place, row in memory.items() if start_ms <= place[0] < end_ms]
    due = max((row[number] for row in inside), default=0) * (length_ms // every_ms)
    is_complete = all(sum(row[each] is not None for row in inside) == due for each in layout.inputs)
    return inside if is_complete else []


def _merged(before: Row, row: Row, layout: Layout) -> Row:
    merged = [new if old is None else old for old, new in zip(before, row, strict=True)]
    if layout.most is not None:
        merged[layout.most] = max(before[layout.most], row[layout.most])
    return tuple(merged)


@dataclass(frozen=True)
class Made:
    """An output column: a function of columns of the remembered rows, by index."""

    function: Function
    numbers: tuple[int, ...]

    def of(self, rows: Sequence[Row]) -> Any:
        """Its value, None without rows."""
        return over(self.function, [row[n] for row in rows for n in self.numbers])


@dataclass(frozen=True)
class StateDefinition:
    """State definition of a stage: columns, layout, and aggregates over them."""

    columns: tuple[Column, ...]
    layout: Layout
    aggregates: tuple[Made, ...]


def remembered(
    stage: StageSpec, aggregates: Sequence[Aggregate], place: Sequence[str], inputs: Inputs
) -> StateDefinition:
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
    sources = list(dict.fromkeys(of for aggregate in aggregates for of in aggregate.of))
    for source in [*sources, *_markers(sources, place, inputs)]:
        if _column(source) not in place:
            numbers[source] = len(columns)
            columns.append(inputs.column([source]))
    layout = Layout(
        1 + len(place), tuple(_first_of(name, numbers, inputs) for name in inputs.names), most
    )
    functions = [
        Made(aggregate.function, tuple(_number(of, numbers) for of in aggregate.of))
        for aggregate in aggregates
    ]
    return StateDefinition(tuple(columns), layout, tuple(functions))


def types_of(stage: StageSpec, columns: Sequence[str], inputs: Inputs) -> list[str]:
    """`NAME TYPE` of columns of the stage's record."""
    kinds = fields_of(stage.record, inputs.domain.codec)
    return [f"{name} {spark_type(kinds[name])}" for name in columns]


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


def with_memory(
    rows: DataFrame,
    group: Sequence[str],
    remembered: StateDefinition,
    rule: Rule,
    fields: Sequence[str],
    *,
    keep_s: int,
) -> DataFrame:
    """Input rows → `group` and `fields` of the rows that `rule` returns.

    fields: `NAME TYPE`. keep_s: how long records are kept, behind the key's newest event time. The
    state is bounded without watermark or timers, and an idle key keeps at most what it had.
    """
    kept = rows.select(
        *group, *(each.alias(f"v{place}") for place, each in enumerate(remembered.columns))
    )
    schema, output = kept.schema, StructType.fromDDL(", ".join(fields))
    state = StructType(schema.fields[len(group) :])
    return kept.groupBy(*group).transformWithState(
        statefulProcessor=Remembering(
            rule, remembered.layout, state, group=list(group), names=output.names, keep_s=keep_s
        ),
        outputStructType=StructType([*schema.fields[: len(group)], *output.fields]),
        outputMode="Update",
        timeMode="None",
    )


class Remembering(StatefulProcessor):  # type: ignore[misc]  # pyspark leaves it untyped
    """Reads the memory of a key, adds its new records, publishes the rows of the rule, and writes
    the memory back: two calls to the state store per key and batch."""

    def __init__(
        self,
        rule: Rule,
        layout: Layout,
        state: StructType,
        *,
        group: list[str],
        names: list[str],
        keep_s: int,
    ) -> None:
        self._rule = rule
        self._layout = layout
        self._schema = state
        self._group = group
        self._names = names
        self._keep_ms = 1000 * keep_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: one row per place."""
        self._state: ListState = handle.getListState("records", self._schema)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[sql.Row]:
        """The output rows of one key after one batch."""
        layout, grouped = self._layout, len(self._group)
        memory: Memory = {row[: layout.place]: row for row in map(tuple, self._state.get())}
        new = (tuple(row)[grouped:] for row in rows)
        result = list(self._rule(memory, remember(memory, new, layout, self._keep_ms)))
        forget(memory, self._keep_ms)
        self._state.put(list(memory.values()))
        head = dict(zip(self._group, key, strict=True))
        for fields in result:
            yield sql.Row(**head, **dict(zip(self._names, fields, strict=True)))

    def close(self) -> None:
        """Nothing to close."""


def aggregate(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and window, once each input has sent all its records."""
    kept = remembered(stage, stage.aggregates, stage.once_per or (SEQUENCE,), inputs)
    spans = spans_of(stage)
    rule = partial(complete_windows, layout=kept.layout, aggregates=kept.aggregates, spans=spans)
    return of_windows(
        rows,
        stage,
        kept,
        rule,
        [each.column for each in stage.aggregates],
        inputs=inputs,
        keep_s=keep_s,
    )


@dataclass(frozen=True)
class Spans:
    """Milliseconds of event time: size and slide of a window, and the interval in which each record
    occurs once."""

    size_ms: int
    slide_ms: int
    every_ms: int = 1000

    def starts(self, new: list[Place]) -> list[int]:
        """Sorted starts of the windows that contain one of these places."""
        touched = {place[0] - place[0] % self.slide_ms for place in new}
        back = range(0, self.size_ms, self.slide_ms)
        return sorted({last - each for last in touched for each in back})


def spans_of(stage: StageSpec) -> Spans:
    """Spans of a stage whose windows are complete by count."""
    assert stage.window is not None
    assert stage.complete is not None
    size_s, slide_s, every_s = stage.window.size_s, stage.window.slide_s, stage.complete.every_s
    return Spans(1000 * size_s, 1000 * slide_s, 1000 * every_s)


def of_windows(
    rows: DataFrame,
    stage: StageSpec,
    kept: StateDefinition,
    rule: Rule,
    columns: Sequence[str],
    *,
    inputs: Inputs,
    keep_s: int,
) -> DataFrame:
    """Input rows → keys, window start and end, and the `columns` of a rule's rows, which begin with
    the window start. keep_s: how long records are kept beyond the length of a window."""
    size_ms = spans_of(stage).size_ms
    fields = ["window_start_ms bigint", *types_of(stage, columns, inputs)]
    keep_s += size_ms // 1000
    result = with_memory(rows, (RUN_ID, *stage.keys), kept, rule, fields, keep_s=keep_s)
    start = F.col("window_start_ms")
    return result.select(
        "*",
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(start + size_ms).alias("window_end"),
    )


def complete_windows(
    memory: Memory,
    new: list[Place],
    layout: Layout,
    aggregates: tuple[Made, ...],
    spans: Spans,
) -> Iterator[tuple[object, ...]]:
    """Windows completed by the new places: start, and the aggregates."""
    for start_ms in spans.starts(new):
        rows = complete_rows(memory, start_ms, spans.size_ms, layout, spans.every_ms)
        if rows:
            yield (start_ms, *(each.of(rows) for each in aggregates))


def join(rows: DataFrame, stage: StageSpec, inputs: Inputs, keep_s: int) -> DataFrame:
    """Input rows → one row per keys and event time, once each input has one.

    The state is kept per output key, of which there are fewer than join keys.
    """
    place = tuple(key for key in stage.keys if key not in (stage.key, inputs.event_time))
    kept = remembered(stage, stage.aggregates, place, inputs)
    names = [each.column for each in stage.aggregates]
    fields = ["event_ms bigint", *types_of(stage, place, inputs), *types_of(stage, names, inputs)]
    rule = partial(joined, layout=kept.layout, aggregates=kept.aggregates)
    group = (RUN_ID, stage.key)
    result = with_memory(rows, group, kept, rule, fields, keep_s=keep_s)
    return result.withColumn(inputs.joined_time, F.timestamp_millis("event_ms"))


def joined(
    memory: Memory, new: list[Place], layout: Layout, aggregates: tuple[Made, ...]
) -> Iterator[tuple[object, ...]]:
    """Newly completed places: the place, and the aggregates over its records."""
    for place in dict.fromkeys(new):
        row = memory[place]
        if layout.is_whole(row):
            yield (*place, *(each.of([row]) for each in aggregates))


def change(
    rows: DataFrame, stage: StageSpec, base: StageSpec, inputs: Inputs, keep_s: int
) -> DataFrame:
    """Input rows → one row per keys and window, once every part of it is complete.

    base: the aggregate that the stage refers to. The parts of a window are the windows of `base`.
    """
    named = {each.of for each in stage.changes}
    aggregates = [item for item in base.aggregates if item.column in named]
    kept = remembered(stage, aggregates, base.once_per or (SEQUENCE,), inputs)
    by_name = dict(zip((item.column for item in aggregates), kept.aggregates, strict=True))
    compared = tuple((by_name[each.of], each.back) for each in stage.changes)
    spans = spans_of(stage)
    rule = partial(changed_windows, layout=kept.layout, compared=compared, spans=spans)
    return of_windows(
        rows,
        stage,
        kept,
        rule,
        [each.column for each in stage.changes],
        inputs=inputs,
        keep_s=keep_s,
    )


def changed_windows(
    memory: Memory,
    new: list[Place],
    layout: Layout,
    compared: tuple[Compared, ...],
    spans: Spans,
) -> Iterator[tuple[object, ...]]:
    """Windows completed by the new places: start, and the changes."""
    for start_ms in spans.starts(new):
        parts = [
            complete_rows(memory, part_ms, spans.slide_ms, layout, spans.every_ms)
            for part_ms in range(start_ms, start_ms + spans.size_ms, spans.slide_ms)
        ]
        if all(parts):
            changes = (
                relative_change(aggregate.of(parts[-1]), aggregate.of(parts[-1 - back]))
                for aggregate, back in compared
            )
            yield (start_ms, *changes)


def relative_change(new: float, old: float) -> float | None:
    """(new - old) / old; None where old is 0."""
    return None if old == 0 else (new - old) / old
