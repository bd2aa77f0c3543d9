"""Building blocks of the queries of all kinds of stages. Pure.

A view has the columns of its rows by name. It also has the hidden columns `_appended`
(LogAppendTime) and `_time` (event time, with a watermark) if the rows have them. Times are BIGINT,
as in the records.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
# An SQL value and its type, by column.
Made = dict[str, tuple[str, str]]

RUN_ID, APPENDED, TIME = "run_id", "_appended", "_time"
OVER_GROUP = {
    "first": "FIRST_VALUE({})",
    "sum": "SUM({})",
    "mean": "AVG({})",
    "min": "MIN({})",
    "max": "MAX({})",
    "count": "COUNT({})",
    "count_distinct": "COUNT(DISTINCT {})",
}
# Functions over one value from each of several records.
OVER_RECORDS: dict[str, Callable[[list[str]], str]] = {
    "sum": " + ".join,
    "mean": lambda values: f"CAST({' + '.join(values)} AS DOUBLE) / {len(values)}",
    "min": lambda values: f"LEAST({', '.join(values)})",
    "max": lambda values: f"GREATEST({', '.join(values)})",
    "count": lambda values: f"CAST({len(values)} AS BIGINT)",
    "count_distinct": lambda values: (
        f"CAST(CARDINALITY(ARRAY_DISTINCT(ARRAY[{', '.join(values)}])) AS BIGINT)"
    ),
}


class CannotError(Exception):
    """The plan cannot be expressed in SQL; the text is one sentence."""


@dataclass(frozen=True)
class View:
    """Rows of a stage, from one input or combined from several. columns: their SQL types.
    event_time: its column, if any. hidden: further columns, see above."""

    query: str
    columns: dict[str, str]
    event_time: str = ""
    hidden: tuple[str, ...] = ()
    name: str = ""


# Rows of a stage by input; the key "" is for rows combined from several.
Rows = dict[str, View]


def name(text: str) -> str:
    """A quoted identifier."""
    return f"`{text}`"


def names(columns: Iterable[str], of: str = "") -> str:
    """A list of identifiers."""
    return ", ".join(f"{of}{name(each)}" for each in columns)


def text(value: str) -> str:
    """A text literal."""
    return "'" + value.replace("'", "''") + "'"


def aliased(made: Made) -> str:
    """The columns of a SELECT."""
    return ", ".join(f"{value} AS {name(column)}" for column, (value, _) in made.items())


def types_of(made: Made) -> dict[str, str]:
    """The types of computed columns."""
    return {column: kind for column, (_, kind) in made.items()}


def types_in(read: Rows, columns: Iterable[str]) -> dict[str, str]:
    """The types of columns that all inputs have."""
    view = next(iter(read.values()))
    return {each: view.columns[each] for each in columns}


def with_columns(spec: Spec, read: Rows, columns: Iterable[str]) -> Rows:
    """The views that have all of these columns, which a stage needs. Raises CannotError if no view
    has them."""
    needed = set(columns)
    found = {source: view for source, view in read.items() if needed <= view.columns.keys()}
    if not found:
        raise CannotError(f"no input of {spec['name']} has the columns {', '.join(sorted(needed))}")
    return found


def keys_of(spec: Spec) -> list[str]:
    """The columns that rows are grouped or joined by: the run and the keys."""
    return list(dict.fromkeys((RUN_ID, *spec["keys"])))


def columns_of(spec: Spec, source: str) -> list[str]:
    """The columns of an input that a stage uses."""
    named = [*spec["columns"].values(), *(of for one in spec["aggregates"] for of in one["of"])]
    return [of.partition(".")[2] for of in named if of.partition(".")[0] == source]


def _common(types: list[str]) -> str:
    """The common SQL type of a function's arguments."""
    if all(each in ("INT", "BIGINT") for each in types):
        return "BIGINT"
    return types[0] if types[0] in ("STRING", "BOOLEAN") else "DOUBLE"


def _result(function: str, kind: str) -> str:
    return {"mean": "DOUBLE", "count": "BIGINT", "count_distinct": "BIGINT"}.get(function, kind)


def over_group(spec: Spec, read: Rows, more: Callable[[View], list[str]]) -> tuple[str, Made]:
    """The rows of a group: run, keys, `_source`, more columns, and a column for each aggregate; and
    the aggregates over them."""
    selects = {
        source: [names(keys_of(spec)), f"{text(source)} AS `_source`", *more(view)]
        for source, view in read.items()
    }
    made: Made = {}
    for place, one in enumerate(spec["aggregates"]):
        named = [of.rpartition(".")[::2] for of in one["of"]]
        found = {source: [column for of, column in named if of in ("", source)] for source in read}
        kind = _common(
            [read[s].columns[column] for s, columns in found.items() for column in columns]
        )
        if one["function"] == "mean":
            kind = "DOUBLE"
        for source, columns in found.items():
            if len(columns) > 1:
                raise CannotError(
                    f"{spec['name']} aggregates several columns of one record in one function, "
                    f"which the Flink engine does not support"
                )
            value = name(columns[0]) if columns else "NULL"
            selects[source].append(f"CAST({value} AS {kind}) AS `_value{place}`")
        value = OVER_GROUP[one["function"]].format(f"`_value{place}`")
        made[one["column"]] = (value, _result(one["function"], kind))
    rows = " UNION ALL ".join(
        f"SELECT {', '.join(columns)} FROM {name(read[source].name)}"
        for source, columns in selects.items()
    )
    return rows, made


def over_records(spec: Spec, read: Rows) -> Made:
    """The aggregates over one record of each input."""
    found = {}
    for one in spec["aggregates"]:
        named = [of.partition(".")[::2] for of in one["of"]]
        kind = _common([read[source].columns[column] for source, column in named])
        values = [f"CAST({name(source)}.{name(column)} AS {kind})" for source, column in named]
        appended = [f"{name(source)}.`{APPENDED}`" for source, _ in named]
        function = one["function"]
        if len(values) == 1 and function in ("first", "min", "max"):
            value = values[0]
        elif function == "first":
            value = _first(values, appended)
        else:
            value = OVER_RECORDS[function](values)
        found[one["column"]] = (value, _result(function, kind))
    return found


def _first(values: list[str], appended: list[str]) -> str:
    cases = (
        f"WHEN {' AND '.join(f'{at} <= {other}' for other in appended)} THEN {value}"
        for value, at in zip(values, appended, strict=True)
    )
    return f"CASE {' '.join(cases)} END"
