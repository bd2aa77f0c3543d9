"""Stage kinds. A kind is a function of a row and the state of the row's key:

    if kind.takes(row):
        kept = states[kind.key_of(row)]
        rows = kind.add(kept, row)

The state of a key maps an event time, or the start of a window, to a row, rows, rows by what counts
once, or a mark (stages/packing.py). A kind writes back what it changes, so the mapping may be a
store. No kind reads the state of other keys, so an engine may keep it anywhere.
"""

import json
import operator
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from stages.event_time import EventTime
from stages.records import Row

Spec = dict[str, Any]
KeptOfKey = MutableMapping[int, Any]
Address = tuple[Any, ...]
APPENDED = operator.attrgetter("appended_ms")
PUBLISHED = True  # mark of a published group or window
MOST_KEPT = 200
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "first": lambda values: values[0],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "count_distinct": lambda values: len(set(values)),
}


class Kept(dict[int, Any]):
    """State of one key in memory: the newest MOST_KEPT entries."""

    def __setitem__(self, at: int, value: Any) -> None:
        if at not in self and len(self) >= MOST_KEPT:
            del self[next(iter(self))]
        super().__setitem__(at, value)


def windows_of(window: Spec, event_ms: int) -> range:
    """Starts of the windows that contain an event time, newest first."""
    slide_ms = 1000 * window["slide_s"]
    return range(event_ms // slide_ms * slide_ms, event_ms - 1000 * window["size_s"], -slide_ms)


def once_per(spec: Spec) -> list[str]:
    """The columns by which a record counts once in a window."""
    return spec["once_per"] or ["sequence"]


def kept_columns(spec: Spec) -> tuple[str, ...]:
    """The columns of a row that a stage needs until its output is made."""
    sources = [*spec["columns"].values(), *(of for one in spec["aggregates"] for of in one["of"])]
    names = ["run_id", *spec["keys"], *(source.rpartition(".")[2] for source in sources)]
    names += [one["of"] for one in spec["changes"]]
    if spec["kind"] == "change":
        names.append("window_start")
    if spec["complete"]:
        names += [*once_per(spec), spec["complete"]["column"]]
    return tuple(dict.fromkeys(names))


class Aggregates:
    """The aggregate columns of a stage."""

    def __init__(self, spec: Spec) -> None:
        self._columns = [
            (one["column"], FUNCTIONS[one["function"]], [of.rpartition(".") for of in one["of"]])
            for one in spec["aggregates"]
        ]

    def over(self, rows: list[Row]) -> dict[str, Any]:
        """Their values over rows."""
        found = {}
        in_order = sorted(rows, key=APPENDED) if len(rows) > 1 else rows
        for column, function, names in self._columns:
            values = [
                row.fields[name]
                for row in in_order
                for source, _, name in names
                if source in ("", row.source)
            ]
            found[column] = function(values) if values else None
        return found


def made(rows: list[Row], columns: dict[str, Any], event_ms: int) -> Row:
    """A row derived from several."""
    fields = {"run_id": rows[0].fields["run_id"], **columns}
    appended_ms = max([row.appended_ms for row in rows])
    return Row(fields, "", event_ms, appended_ms, max([row.due_ms for row in rows]))


class PerRow:
    """copy, decode, filter, lookup: stateless kinds."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def add(self, row: Row) -> list[Row]:
        """The row with the stage's columns, or none."""
        fields, table = row.fields, self.spec["table"]
        for one in self.spec["where"]:
            value = fields.get(one["column"])
            if value is None or not COMPARE[one["operator"]](value, one["value"]):
                return []
        if table:
            key = fields.get(table["key"])
            entry = None if key is None else table["rows"].get(str(key))
            if entry is None:
                return []
            fields = {**fields, **dict(zip(table["columns"], entry, strict=True))}
        return [row if fields is row.fields else row._replace(fields=fields)]


class Keyed:
    """A stage with state per key."""

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        self.spec = spec
        self.inputs = [one["name"] for one in inputs]
        self.names = ("run_id", *spec["keys"])
        self._key_columns = frozenset(self.names)
        self._kept_columns = kept_columns(spec)
        self.aggregates = Aggregates(spec)
        self.size_ms = 1000 * spec["window"]["size_s"] if spec["window"] else 0

    def takes(self, row: Row) -> bool:
        """Whether the stage uses a row: it has the columns of the key, and is a record of one of
        the stage's inputs or derived from several records. The other methods expect such rows."""
        is_of_input = not row.source or row.source in self.inputs
        return is_of_input and self._key_columns <= row.fields.keys()

    def address_of(self, row: Row) -> Address:
        """The run and the values of the key."""
        return tuple([row.fields[name] for name in self.names])

    def key_of(self, row: Row) -> str:
        """The same as text."""
        return json.dumps(self.address_of(row))

    def keys_of(self, row: Row) -> dict[str, Any]:
        """The columns of the key."""
        return {name: row.fields[name] for name in self.spec["keys"]}

    def narrow(self, row: Row) -> Row:
        """A row with the columns that are kept: engines may write the state with every record."""
        fields = row.fields
        few = {name: fields[name] for name in self._kept_columns if name in fields}
        return Row(few, *row[1:])

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        """The rows due after one more row."""
        raise NotImplementedError

    def of_window(self, rows: list[Row], start_ms: int, columns: dict[str, Any]) -> Row:
        """An output row of a window."""
        end_ms = start_ms + self.size_ms
        columns = {
            **self.keys_of(rows[0]),
            "window_start": start_ms,
            "window_end": end_ms,
        } | columns
        return made(rows, {**columns, **self.aggregates.over(rows)}, end_ms - 1)


class Join(Keyed):
    """Joins the first record of each input with the same keys and event time."""

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.event_time = inputs[0]["event_time"]

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        group = kept.get(row.event_ms) or {}
        if group is PUBLISHED or row.source in group:
            return []
        group[row.source] = self.narrow(row)
        if len(group) < len(self.inputs):
            kept[row.event_ms] = group
            return []
        kept[row.event_ms] = PUBLISHED
        rows = list(group.values())
        columns = {**self.keys_of(row), self.event_time: row.event_ms}
        return [made(rows, columns | self.aggregates.over(rows), row.event_ms)]


class WindowJoin(Keyed):
    """Joins each pair of records of two inputs with the same keys in one window, unless one of them
    is late. times: of the plan."""

    def __init__(self, spec: Spec, inputs: list[Spec], times: EventTime) -> None:
        super().__init__(spec, inputs)
        self.times = times
        self.columns = {name: source.split(".") for name, source in spec["columns"].items()}

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        found = []
        row = self.narrow(row)
        for start_ms in windows_of(self.spec["window"], row.event_ms):
            if self.times.is_late(row, self.inputs, start_ms + self.size_ms):
                continue
            group = kept.get(start_ms) or []
            for other in group:
                if other.source != row.source:
                    by_source = {row.source: row.fields, other.source: other.fields}
                    columns = {name: by_source[of][at] for name, (of, at) in self.columns.items()}
                    found.append(self.of_window([row, other], start_ms, columns))
            group.append(row)
            kept[start_ms] = group
        return found


class Aggregate(Keyed):
    """Groups rows by keys and window; a subclass decides when a window is due. empty: makes the
    state of a window without rows."""

    empty: Callable[[], Any]

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        sources = [of.rpartition(".")[0] for one in spec["aggregates"] for of in one["of"]]
        self.needed = {source for source in sources if source}

    def open_windows(self, kept: KeptOfKey, row: Row) -> Iterator[tuple[int, Any]]:
        """The unpublished windows of a row: start and state."""
        for start_ms in windows_of(self.spec["window"], row.event_ms):
            group = kept.get(start_ms)
            if group is not PUBLISHED:
                yield start_ms, self.empty() if group is None else group

    def publish(self, kept: KeptOfKey, start_ms: int, rows: list[Row]) -> list[Row]:
        """The output of a window, if each of its inputs has a row in it."""
        kept[start_ms] = PUBLISHED
        if not rows or not self.needed <= {row.source for row in rows}:
            return []
        return [self.of_window(rows, start_ms, {})]


class Counted(Aggregate):
    """A window is due when it has as many records as the records themselves announce."""

    empty = dict

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.every_ms = 1000 * spec["complete"]["every_s"]
        self.once_per = once_per(spec)

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        found = []
        identity = self.identity(row)
        row = self.narrow(row)
        for start_ms, group in self.open_windows(kept, row):
            if identity in group:
                continue
            group[identity] = row
            if self.is_complete(group):
                found += self.publish(kept, start_ms, list(group.values()))
            else:
                kept[start_ms] = group
        return found

    def identity(self, row: Row) -> tuple[Any, ...]:
        """The values by which a row counts once."""
        part = row.event_ms // self.every_ms
        return row.source, part, *(row.fields[name] for name in self.once_per)

    def is_complete(self, group: dict[tuple[Any, ...], Row]) -> bool:
        """Whether each input has as many rows as the largest announced count. A row derived from
        several records counts for each input."""
        column = self.spec["complete"]["column"]
        parts = self.size_ms // self.every_ms
        rows = group.values()
        first = next(iter(rows))
        due = parts * first.fields[column]  # the largest count is at least this one
        if len(rows) < due * (len(self.inputs) if first.source else 1):
            return False
        due = parts * max(row.fields[column] for row in rows)
        return all(sum(row.source in ("", one) for row in rows) >= due for one in self.inputs)


class Change(Keyed):
    """Relative changes of an aggregate's windows from earlier ones. If counted, it waits for all
    parts; if closed, it uses the parts that exist when the newest is closed."""

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.part_ms = 1000 * spec["window"]["slide_s"]

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        newest_ms = row.fields["window_start"]
        kept[newest_ms] = self.narrow(row)
        if not self.spec["complete"]:
            return [self.change(kept, newest_ms)]
        ends = range(newest_ms, newest_ms + self.size_ms, self.part_ms)
        return [self.change(kept, at) for at in ends if all(one in kept for one in self.parts(at))]

    def parts(self, newest_ms: int) -> range:
        """Starts of the parts of the window that ends with this one."""
        return range(newest_ms + self.part_ms - self.size_ms, newest_ms + 1, self.part_ms)

    def change(self, kept: KeptOfKey, newest_ms: int) -> Row:
        """The output of the window that ends with this part."""
        rows = {at: kept[at] for at in self.parts(newest_ms) if at in kept}
        columns = {}
        for one in self.spec["changes"]:
            new = rows[newest_ms].fields[one["of"]]
            before = rows.get(newest_ms - one["back"] * self.part_ms)
            old = before.fields[one["of"]] if before else None
            columns[one["column"]] = (new - old) / old if old else None
        return self.of_window([*rows.values()], self.parts(newest_ms)[0], columns)
