"""The macros and variables of a Grafana query, made into ClickHouse SQL. Pure.

    expand(
        "SELECT $__timeInterval(second) AS time, sum(records) FROM throughput_by_second"
        " WHERE $__timeFilter(second) AND $__conditionalAll(topic IN (${topic:sqlstring}), $topic)"
        " GROUP BY time ORDER BY time",
        TimeRange(1_767_225_600_000, 1_767_229_200_000), 5, {"topic": ["orders"]},
    )

Implements what Grafana and its ClickHouse data source (version 4) do, as far as our dashboards use
it, so that dashboards can be shown and their queries tested without Grafana. In the same order:
`$__conditionalAll` first, then variables, then the other macros.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ALL: Final = "$__all"  # value of a variable with everything selected
Value = str | Sequence[str]

BY_MINUTE_S: Final = 21_600  # as `LATENCIES` in deploy/grafana/program/sql.py
_CONDITIONAL: Final = "$__conditionalAll("
_NAME = re.compile(r"\$\{?(\w+)")
# $name, ${name} and ${name:format}; names with two leading underscores are Grafana's own.
_VARIABLE = re.compile(r"\$(?:(?!__)([A-Za-z_]\w*)|\{(?!__)(\w+)(?::(\w+))?\})")
_MACRO = re.compile(r"\$(?:__(\w+)|\{__(\w+)\})")


class MacroError(ValueError):
    """A query contains an unknown or misused macro or variable."""


@dataclass(frozen=True)
class TimeRange:
    """The range of the time picker, epoch milliseconds, both ends inclusive."""

    from_ms: int
    to_ms: int


def expand(sql: str, time_range: TimeRange, interval_s: int, variables: Mapping[str, Value]) -> str:
    """The SQL that the data source would send.

    interval_s: seconds per point, at least 1. variables: name to value, to values, or to ALL; may
    contain names that the query does not use. Raises MacroError.
    """
    return _expand_macros(with_values(sql, variables), time_range, max(1, interval_s))


def with_values(sql: str, variables: Mapping[str, Value]) -> str:
    """Substitute variables and the macros that Grafana leaves to the data source."""
    return _replace_variables(_resolve_conditions(sql, variables), variables)


def interval_for(time_range: TimeRange, points: int, least_s: int = 1) -> int:
    """Seconds per point for about `points` of them, at least 1, over the range. At least a minute
    if latencies are read from the per-minute table."""
    span_s = (time_range.to_ms - time_range.from_ms) / 1000
    wanted = max(span_s / max(1, points), 60 if span_s >= BY_MINUTE_S else 1)
    steps = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800)
    days = (21_600, 43_200, 86_400, 604_800, 2_592_000)
    return next((step for step in steps + days if step >= max(wanted, least_s)), days[-1])


def names_used(sql: str) -> set[str]:
    """Names of the dashboard variables that a query uses."""
    return {plain or braced for plain, braced, _format in _VARIABLE.findall(sql)}


def _resolve_conditions(sql: str, variables: Mapping[str, Value]) -> str:
    while (start := sql.rfind(_CONDITIONAL)) >= 0:
        arguments, end = _arguments(sql, start + len(_CONDITIONAL) - 1)
        named = _NAME.search(arguments[-1]) if arguments else None
        if len(arguments) != 2 or named is None:
            raise MacroError("$__conditionalAll needs a condition and a variable.")
        everything = _is_all(_value(named[1], variables))
        sql = sql[:start] + ("1=1" if everything else arguments[0]) + sql[end:]
    return sql


def _is_all(value: Value) -> bool:
    return value in ("", ALL) or (not isinstance(value, str) and (not value or ALL in value))


def _replace_variables(sql: str, variables: Mapping[str, Value]) -> str:
    def replaced(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        value = _value(name, variables)
        values = [value] if isinstance(value, str) else list(value)
        if ALL in values:
            raise MacroError(f"${name} is used outside $__conditionalAll, but its value is All.")
        if match[3] not in FORMATS:
            raise MacroError(f"${{{name}:{match[3]}}}: formats are sqlstring, csv and raw.")
        return FORMATS[match[3]](values)

    return _VARIABLE.sub(replaced, sql)


def _value(name: str, variables: Mapping[str, Value]) -> Value:
    if name not in variables:
        raise MacroError(f"No value is given for the variable ${name}.")
    return variables[name]


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _plain(values: list[str]) -> str:
    """The default format: one value unchanged, several quoted, as the data source does."""
    return values[0] if len(values) == 1 else ",".join(map(_quoted, values))


FORMATS: Final[dict[str | None, Callable[[list[str]], str]]] = {
    "sqlstring": lambda values: ",".join(map(_quoted, values)),
    "csv": ",".join,
    "raw": ",".join,
    None: _plain,
}


def _expand_macros(sql: str, time_range: TimeRange, interval_s: int) -> str:
    done, position = [], 0
    for result in _MACRO.finditer(sql):
        if result.start() < position:
            raise MacroError(f"{result[0]} is inside another macro.")
        done.append(sql[position : result.start()])
        arguments, position = _arguments(sql, result.end())
        done.append(_macro(result[1] or result[2], arguments, time_range, interval_s))
    return "".join(done) + sql[position:]


def _macro(name: str, arguments: list[str], time_range: TimeRange, interval_s: int) -> str:
    from_ms, to_ms = time_range.from_ms, time_range.to_ms
    from_s, to_s = f"toDateTime({from_ms // 1000})", f"toDateTime({to_ms // 1000})"
    from_64, to_64 = (f"fromUnixTimestamp64Milli({ms})" for ms in (from_ms, to_ms))
    constants = {
        "fromTime": from_s,
        "toTime": to_s,
        "fromTime_ms": from_64,
        "toTime_ms": to_64,
        "interval_s": str(interval_s),
        "from": str(from_ms),
        "to": str(to_ms),
    }
    if name in constants:
        return constants[name]
    if len(arguments) != 1:
        raise MacroError(f"$__{name} is unknown, or needs one argument.")
    column = arguments[0].strip()
    of_column = {
        "timeFilter": f"{column} >= {from_s} AND {column} <= {to_s}",
        "timeFilter_ms": f"{column} >= {from_64} AND {column} <= {to_64}",
        "timeInterval": f"toStartOfInterval(toDateTime({column}), INTERVAL {interval_s} second)",
    }
    if name not in of_column:
        raise MacroError(f"$__{name} is unknown.")
    return of_column[name]


def _arguments(sql: str, start: int) -> tuple[list[str], int]:
    """Arguments in the parentheses that open at `start`, and their end; none without them."""
    if sql[start : start + 1] != "(":
        return [], start
    arguments, depth, begin = [], 0, start + 1
    quoted = False
    for place in range(start, len(sql)):
        letter = sql[place]
        quoted ^= letter == "'"
        if quoted:
            continue
        depth += (letter == "(") - (letter == ")")
        if depth == 0 or (depth == 1 and letter == ","):
            arguments.append(sql[begin:place])
            begin = place + 1
        if depth == 0:
            return [each for each in arguments if each.strip()], place + 1
    raise MacroError("A bracket of a macro is unclosed.")
