"""The kinds of stages as queries on views. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from sql import (
    APPENDED,
    TIME,
    CannotError,
    Made,
    Rows,
    Spec,
    View,
    aliased,
    columns_of,
    keys_of,
    name,
    names,
    over_group,
    over_records,
    text,
    types_in,
    types_of,
    with_columns,
)

OPERATORS = {"==": "=", "!=": "<>"}
BOUNDS = {"window_start": "BIGINT", "window_end": "BIGINT"}


def filtered(spec: Spec, read: Rows) -> Rows:
    """filter. Records of an input without a column of a condition are dropped."""

    def condition(one: Spec) -> str:
        value = one["value"]
        constant = text(value) if isinstance(value, str) else f"CAST({value!r} AS DOUBLE)"
        operator = OPERATORS.get(one["operator"], one["operator"])
        return f"{name(one['column'])} {operator} {constant}"

    where = " AND ".join(map(condition, spec["where"]))
    used = [one["column"] for one in spec["where"]]
    return {
        source: replace(view, query=f"SELECT * FROM {name(view.name)} WHERE {where}")
        for source, view in with_columns(spec, read, used).items()
    }


def looked_up(spec: Spec, read: Rows, plan_file: str) -> Rows:
    """lookup: a function with the table in memory. A lookup join would be Flink's own way, but the
    planner then recomputes the stage for every stage that reads it. Records of an input without the
    key are dropped."""
    table = spec["table"]
    row = next(iter(table["rows"].values()), ("",) * len(table["columns"]))
    key = f"CAST({name(table['key'])} AS STRING)"
    values, types = [], {}
    for place, (column, value) in enumerate(zip(table["columns"], row, strict=True)):
        is_text = isinstance(value, str)
        function = "entry_text" if is_text else "entry_number"
        values.append(f"{function}({text(plan_file)}, {text(spec['name'])}, {place}, {key})")
        types[column] = "STRING" if is_text else "DOUBLE"
    added = ", ".join(f"{value} AS {name(e)}" for value, e in zip(values, types, strict=True))

    def query(view: View) -> str:
        kept = [each for each in (*view.columns, *view.hidden) if each not in types]
        return f"SELECT {names(kept)}, {added} FROM {name(view.name)} WHERE {values[0]} IS NOT NULL"

    return {
        source: replace(view, query=query(view), columns=view.columns | types)
        for source, view in with_columns(spec, read, [table["key"]]).items()
    }


def joined(spec: Spec, read: Rows) -> Rows:
    """join: for each input the first row with the same keys and event time. A regular join without
    a watermark, so no record is late for it."""
    (first, left), *others = read.items()
    keys, sides = keys_of(spec), []
    for source, view in read.items():
        by = [*keys, view.event_time]
        used = names(dict.fromkeys((*by, *columns_of(spec, source), APPENDED)))
        rows = f"(SELECT {used} FROM {name(view.name)})"
        sides.append(f"{_firsts(rows, map(name, by))} AS {name(source)}")
    for number, (source, view) in enumerate(others, 1):
        pairs = [*((each, each) for each in keys), (left.event_time, view.event_time)]
        equal = (f"{name(first)}.{name(a)} = {name(source)}.{name(b)}" for a, b in pairs)
        sides[number] = f"JOIN {sides[number]} ON {' AND '.join(equal)}"
    plain = dict.fromkeys((*keys, left.event_time))
    made = {each: (f"{name(first)}.{name(each)}", left.columns[each]) for each in plain}
    made |= over_records(spec, read)
    query = f"SELECT {aliased(made)} FROM {' '.join(sides)}"
    return {"": View(query, types_of(made), left.event_time)}


def window_joined(spec: Spec, read: Rows) -> Rows:
    """window_join: a window join, published when the watermark passes the window's end."""
    (first, left), (second, _) = read.items()
    keys = keys_of(spec)
    rows, sides = [], []
    for source, view in read.items():
        used = dict.fromkeys((*keys, *columns_of(spec, source), *view.hidden))
        rows.append(f"{name(f'{source}_rows')} AS (SELECT {names(used)} FROM {name(view.name)})")
        sides.append(f"(SELECT * FROM {_windows(f'{source}_rows', spec)}) AS {name(source)}")
    made = {each: (f"{name(first)}.{name(each)}", left.columns[each]) for each in keys}
    for column, source in spec["columns"].items():
        of, _, from_ = source.partition(".")
        made[column] = (f"{name(of)}.{name(from_)}", read[of].columns[from_])
    made |= over_records(spec, read) | _bounds(f"{name(first)}.")
    equal = " AND ".join(
        f"{name(first)}.{name(each)} = {name(second)}.{name(each)}" for each in (*keys, *BOUNDS)
    )
    query = (
        f"WITH {', '.join(rows)} "
        f"SELECT {aliased(made)}, {name(first)}.`window_time` AS `{TIME}` "
        f"FROM {sides[0]} JOIN {sides[1]} ON {equal}"
    )
    return {"": View(query, types_of(made), hidden=(TIME,))}


def counted(spec: Spec, read: Rows, inputs: Iterable[str]) -> Rows:
    """aggregate with `complete`: an updating result that is published when its number of rows
    reaches the expected number. A repeated row counts once."""
    if "" in read:
        raise CannotError(
            f"the Flink engine cannot count the records of {spec['name']}, because the stage that "
            f"it reads combines several records into one"
        )
    complete, window, keys = spec["complete"], spec["window"], keys_of(spec)
    size_ms, slide_ms = 1000 * window["size_s"], 1000 * window["slide_s"]
    once = spec["once_per"] or ["sequence"]

    def more(view: View) -> list[str]:
        at = name(view.event_time)
        identity = [f"{name(each)} AS `_once{place}`" for place, each in enumerate(once)]
        every = f"{at} / {1000 * complete['every_s']} AS `_every`"
        return [f"{at} AS `_at`", every, f"{name(complete['column'])} AS `_most`", *identity]

    rows, made = over_group(spec, read, more)
    by = [*map(name, keys), "`_source`", "`_every`", *(f"`_once{n}`" for n in range(len(once)))]
    starts = [f"`_at` - MOD(`_at`, {slide_ms}) - {ms}" for ms in range(0, size_ms, slide_ms)]
    firsts = _firsts("`rows`", by)
    if len(starts) == 1:
        source = f"(SELECT *, {starts[0]} AS `_start` FROM {firsts})"
    else:
        source = firsts + _each(starts, "_start")
    due = f"MAX(`_most`) * {window['size_s'] // complete['every_s']}"
    having = (f"COUNT(*) FILTER (WHERE `_source` = {text(each)}) >= {due}" for each in inputs)
    query = (
        f"WITH `rows` AS ({rows}) SELECT {names(keys)}, `_start` AS `window_start`, "
        f"`_start` + {size_ms} AS `window_end`, {aliased(made)} FROM {source} "
        f"GROUP BY {names([*keys, '_start'])} HAVING {' AND '.join(having)}"
    )
    return {"": View(query, types_in(read, keys) | BOUNDS | types_of(made))}


def closed(spec: Spec, read: Rows, needed: Iterable[str]) -> Rows:
    """aggregate without `complete`: published when the watermark passes the window's end, if each
    needed input has a record."""
    keys = keys_of(spec)
    rows, made = over_group(spec, read, lambda _: [name(TIME)])
    having = [f"COUNT(*) FILTER (WHERE `_source` = {text(each)}) > 0" for each in needed]
    given = {each: (name(each), kind) for each, kind in types_in(read, keys).items()}
    given |= _bounds() | made
    query = (
        f"WITH `rows` AS ({rows}) SELECT {aliased(given)}, `window_time` AS `{TIME}` "
        f"FROM {_windows('rows', spec)} "
        f"GROUP BY {names([*keys, *BOUNDS, 'window_time'])}"
    )
    if having and max(len(having), len(read)) > 1:
        query += f" HAVING {' AND '.join(having)}"
    return {"": View(query, types_of(given), hidden=(TIME,))}


def changed(spec: Spec, read: Rows) -> Rows:
    """change: a window over windows. With `complete`, each inner window is added to the windows
    that it is part of, and a window is published when it has all parts. Otherwise the watermark
    closes it, and its newest part must exist."""
    part_ms, keys = 1000 * spec["window"]["slide_s"], keys_of(spec)
    columns = {one["of"]: f"_of{place}" for place, one in enumerate(spec["changes"])}
    values = (f"CAST({name(of)} AS DOUBLE) AS {name(alias)}" for of, alias in columns.items())
    rows = f"SELECT {names(keys)}, `window_start` AS `_part`, {', '.join(values)}"

    def value(column: str, back: int) -> str:
        return f"SUM(CASE WHEN `_back` = {back} THEN {name(columns[column])} END)"

    made: Made = {}
    for one in spec["changes"]:
        new, old = value(one["of"], 0), value(one["of"], one["back"])
        made[one["column"]] = (f"CASE WHEN {old} <> 0 THEN ({new} - {old}) / {old} END", "DOUBLE")
    end = "`_end`" if spec["complete"] else _epoch_ms("`window_end`")
    backs = f"SELECT *, ({end} - `_part`) / {part_ms} - 1 AS `_back`"
    if spec["complete"]:
        return {"": _changed_counted(spec, read, made, f"{backs} FROM ({rows}", part_ms)}
    given = {each: (name(each), kind) for each, kind in types_in(read, keys).items()}
    given |= _bounds() | made
    query = (
        f"WITH `rows` AS ({rows}, `{TIME}` FROM {name(read[''].name)}) "
        f"SELECT {aliased(given)}, `window_time` AS `{TIME}` "
        f"FROM ({backs} FROM {_windows('rows', spec)}) "
        f"GROUP BY {names([*keys, *BOUNDS, 'window_time'])} "
        f"HAVING COUNT(*) FILTER (WHERE `_back` = 0) > 0"
    )
    return {"": View(query, types_of(given), hidden=(TIME,))}


def _changed_counted(spec: Spec, read: Rows, made: Made, rows: str, part_ms: int) -> View:
    keys, parts = keys_of(spec), spec["window"]["size_s"] // spec["window"]["slide_s"]
    ends = [f"`_part` + {part_ms * (back + 1)}" for back in range(parts)]
    query = (
        f"SELECT {names(keys)}, `_end` - {part_ms * parts} AS `window_start`, "
        f"`_end` AS `window_end`, {aliased(made)} "
        f"FROM ({rows} FROM {name(read[''].name)}){_each(ends, '_end')}) "
        f"GROUP BY {names([*keys, '_end'])} HAVING COUNT(*) = {parts}"
    )
    return View(query, types_in(read, keys) | BOUNDS | types_of(made))


def _with_now(rows: str) -> str:
    return f"(SELECT *, PROCTIME() AS `_now` FROM {rows})"


def _firsts(rows: str, by: Iterable[str]) -> str:
    """The first row of each group with equal columns."""
    return (
        f"(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {', '.join(by)} "
        f"ORDER BY `_now`) AS `_number` FROM {_with_now(rows)}) WHERE `_number` = 1)"
    )


def _each(values: list[str], column: str) -> str:
    """One row for each of several values computed from its columns."""
    return f" CROSS JOIN UNNEST(ARRAY[{', '.join(values)}]) AS `each` ({name(column)})"


def _windows(rows: str, spec: Spec) -> str:
    """Flink's window table function, which assigns rows to event-time windows."""
    size, slide = (f"INTERVAL '{spec['window'][each]}' SECOND(5)" for each in ("size_s", "slide_s"))
    return f"TABLE(HOP(TABLE {name(rows)}, DESCRIPTOR(`{TIME}`), {slide}, {size}))"


def _epoch_ms(time: str) -> str:
    since = f"TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {time})"
    return f"CAST({since} AS BIGINT) * 1000"


def _bounds(of: str = "") -> Made:
    return {each: (_epoch_ms(f"{of}{name(each)}"), kind) for each, kind in BOUNDS.items()}
