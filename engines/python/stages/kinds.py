"""Stage kinds. A kind is a function of a row and the state of the row's key:

    if kind.takes(row):
        kept = states[kind.key_of(row)]
        rows = kind.add(kept, row)

The state of a key maps an event time, or the start of a window, to a row, rows, rows by input, a
counted window or a mark (stages/packing.py). A kind writes back what it changes, so the mapping may
be a store. No kind reads the state of other keys, so an engine may keep it anywhere.
"""

import operator
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from stages.event_time import EventTime
from stages.records import Row

Spec = dict[str, Any]
KeptOfKey = MutableMapping[int, Any]
Address = tuple[Any, ...]
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


def first(kept: list[Any] | None, value: Any, appended_ms: int) -> list[Any]:
    """The value appended first, with that time."""
    return [appended_ms, value] if kept is None or appended_ms < kept[0] else kept


def mean(kept: list[Any] | None, value: Any, _appended_ms: int) -> list[Any]:
    """The sum and the number of values."""
    return [value, 1] if kept is None else [kept[0] + value, kept[1] + 1]


def distinct(kept: set[Any] | None, value: Any, _appended_ms: int) -> set[Any]:
    """The distinct values."""
    kept = set() if kept is None else kept
    kept.add(value)
    return kept


# What is kept of values so far (None before the first), one more value, and when it was appended.
FUNCTIONS: dict[str, Callable[[Any, Any, int], Any]] = {
    "first": first,
    "sum": lambda kept, value, _: value if kept is None else kept + value,
    "mean": mean,
    "min": lambda kept, value, _: value if kept is None else min(kept, value),
    "max": lambda kept, value, _: value if kept is None else max(kept, value),
    "count": lambda kept, _value, _: 1 if kept is None else kept + 1,
    "count_distinct": distinct,
}
# The result of a function whose result is not what is kept.
RESULTS: dict[str, Callable[[Any], Any]] = {
    "first": lambda kept: kept[1],
    "mean": lambda kept: kept[0] / kept[1],
    "count_distinct": len,
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


def kept_columns(spec: Spec) -> tuple[str, ...]:
    """The columns of a row that a stage needs until its output is made."""
    sources = [*spec["columns"].values(), *(of for one in spec["aggregates"] for of in one["of"])]
    names = ["run_id", *spec["keys"], *(source.rpartition(".")[2] for source in sources)]
    names += [one["of"] for one in spec["changes"]]
    if spec["kind"] == "change":
        names.append("window_start")
    return tuple(dict.fromkeys(names))


class Aggregates:
    """The aggregate columns of a stage. What is kept of the rows so far is a list with an item for
    each column."""

    def __init__(self, spec: Spec) -> None:
        self._results = [
            (one["column"], RESULTS.get(one["function"])) for one in spec["aggregates"]
        ]
        self._functions = [
            (place, FUNCTIONS[one["function"]], *of.rpartition(".")[::2])
            for place, one in enumerate(spec["aggregates"])
            for of in one["of"]
        ]
        self._of_source: dict[str, list[tuple[int, Callable[..., Any], str]]] = {}

    def none(self) -> list[Any]:
        """What is kept of no rows."""
        return [None] * len(self._results)

    def add(self, kept: list[Any], row: Row) -> None:
        """Change what is kept by one more row; null values do not count."""
        functions = self._of_source.get(row.source)
        if functions is None:
            functions = self._of_source[row.source] = [
                (place, function, name)
                for place, function, source, name in self._functions
                if source in ("", row.source)
            ]
        for place, function, name in functions:
            value = row.fields[name]
            if value is not None:
                kept[place] = function(kept[place], value, row.appended_ms)

    def results(self, kept: list[Any]) -> dict[str, Any]:
        """The values of the columns; null without values."""
        return {
            column: value if value is None or result is None else result(value)
            for (column, result), value in zip(self._results, kept, strict=True)
        }

    def over(self, rows: Iterable[Row]) -> dict[str, Any]:
        """The values of the columns over rows."""
        kept = self.none()
        for row in rows:
            self.add(kept, row)
        return self.results(kept)


@dataclass
class CountedRows:
    """The rows of a counted window so far. identities: what counts once, in order; counts: rows by
    input; most: the largest number that one announces; values: see Aggregates."""

    identities: dict[str, None]
    counts: list[int]
    most: int
    appended_ms: int
    due_ms: float
    values: list[Any]


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
        return repr(self.address_of(row))

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

    def window_of(self, row: Row, start_ms: int) -> dict[str, Any]:
        """The columns of the key and of a window."""
        end_ms = start_ms + self.size_ms
        return {**self.keys_of(row), "window_start": start_ms, "window_end": end_ms}

    def of_window(self, rows: list[Row], start_ms: int, columns: dict[str, Any]) -> Row:
        """An output row of a window."""
        columns = {**self.window_of(rows[0], start_ms), **columns, **self.aggregates.over(rows)}
        return made(rows, columns, start_ms + self.size_ms - 1)


class Join(Keyed):
    """Joins the first record of each input with the same keys and event time."""

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.event_time = inputs[0]["event_time"]

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        group = kept.get(row.event_ms) or {}
        if group is PUBLISHED or row.source in group:
            return []
        if len(group) + 1 < len(self.inputs):
            kept[row.event_ms] = {**group, row.source: self.narrow(row)}
            return []
        kept[row.event_ms] = PUBLISHED
        rows = [*group.values(), row]
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


class Counted(Keyed):
    """A window is due when it has as many records as the records themselves announce."""

    def __init__(self, spec: Spec, inputs: list[Spec]) -> None:
        super().__init__(spec, inputs)
        self.every_ms = 1000 * spec["complete"]["every_s"]
        self.once_per = spec["once_per"] or ["sequence"]
        self.announced = spec["complete"]["column"]
        self.parts = self.size_ms // self.every_ms

    def add(self, kept: KeptOfKey, row: Row) -> list[Row]:
        found = []
        identity = self.identity(row)
        for start_ms in windows_of(self.spec["window"], row.event_ms):
            window = kept.get(start_ms)
            if window is PUBLISHED:
                continue
            if window is None:
                window = CountedRows({}, [0] * len(self.inputs), 0, 0, 0, self.aggregates.none())
            elif identity in window.identities:
                continue
            self.count(window, identity, row)
            if min(window.counts) < window.most * self.parts:
                kept[start_ms] = window
                continue
            kept[start_ms] = PUBLISHED
            if all(window.counts):
                found.append(self.output(window, start_ms, row))
        return found

    def identity(self, row: Row) -> str:
        """The values by which a row counts once, as text."""
        part = row.event_ms // self.every_ms
        return repr((row.source, part, *[row.fields[name] for name in self.once_per]))

    def count(self, window: CountedRows, identity: str, row: Row) -> None:
        """Add a row to a window. One derived from several records counts for each input."""
        window.identities[identity] = None
        for place, name in enumerate(self.inputs):
            window.counts[place] += row.source in ("", name)
        window.most = max(window.most, row.fields[self.announced])
        window.appended_ms = max(window.appended_ms, row.appended_ms)
        window.due_ms = max(window.due_ms, row.due_ms)
        self.aggregates.add(window.values, row)

    def output(self, window: CountedRows, start_ms: int, row: Row) -> Row:
        """The output of a window that a row completes."""
        columns = self.window_of(row, start_ms) | self.aggregates.results(window.values)
        fields = {"run_id": row.fields["run_id"], **columns}
        return Row(fields, "", start_ms + self.size_ms - 1, window.appended_ms, window.due_ms)


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
