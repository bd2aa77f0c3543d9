"""Output records of one pipeline and stage as columns, and queues for outputs that wait: until
everything before them has been read, or for inputs that explain them. `OutputColumns` are those of
the record of a stage, and where their text comes from.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.domain import RUN_ID, DomainSpec, StageSpec
from services.evaluator.columnar.column_mapping import Column, Dictionaries, column_types, dtype_of
from services.evaluator.columnar.columns import UNKNOWN, Bools, Ints, first_of_each
from services.evaluator.columnar.decode import Decoded
from services.runtime.counting import by_value

Content = dict[str, np.ndarray[Any, Any]]
PARTITION_BITS = 16  # leaves 47 for milliseconds
MAX_UNDECODABLE = 1_000_000
NULL = np.iinfo(np.int64).min  # in columns of integers; no expected value


@dataclass(frozen=True)
class OutputKeys:
    """Keys of output records: the key itself, and whether it is correct."""

    is_right: Bools
    values: np.ndarray[Any, Any]

    def take(self, rows: Ints | slice) -> "OutputKeys":
        """Keys of the given rows."""
        return OutputKeys(self.is_right[rows], self.values[rows])


def judged_keys(keys: list[bytes | None], column: pa.Array) -> OutputKeys | None:
    """Compare keys with the text of a column; None if all are equal."""
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    is_right = pc.equal(pa.array(keys, pa.binary()), column.cast(pa.binary()))
    if is_right.null_count == 0 and pc.all(is_right, min_count=0).as_py():
        return None
    values = np.empty(len(keys), object)
    values[:] = keys
    right: Bools = is_right.fill_null(False).to_numpy(zero_copy_only=False)
    return OutputKeys(right, values)


@dataclass(frozen=True)
class Outputs:
    """Output records of one pipeline and stage, one row each, in topic order.

    group, index: address. Until `Stage.located` the index may be the code of the keys; UNKNOWN if
    its values are unknown. appended_ms: the broker's LogAppendTime. content: the compared columns,
    by name. places: partition and offset of each record (`pack_offsets`), if single pairs are
    requested. keys: None if all are correct. visible_ms: when consumers of committed records could
    read them; UNKNOWN, or None for all, in partitions without transactions. received_ns: when their
    frames were received from a system behind sockets, by its machine's monotonic clock; UNKNOWN
    without a stamp.
    """

    group: Ints
    index: Ints
    appended_ms: Ints
    content: Content
    places: Ints | None = None
    keys: OutputKeys | None = None
    visible_ms: Ints | None = None
    received_ns: Ints | None = None

    def __len__(self) -> int:
        return len(self.group)

    def at(self, index: Ints) -> "Outputs":
        """The same rows with these indices."""
        return replace(self, index=index)

    def take(self, rows: Ints | slice) -> "Outputs":
        """The given rows, in the given order."""
        content = {name: column[rows] for name, column in self.content.items()}
        places = None if self.places is None else self.places[rows]
        keys = None if self.keys is None else self.keys.take(rows)
        visible_ms = None if self.visible_ms is None else self.visible_ms[rows]
        received_ns = None if self.received_ns is None else self.received_ns[rows]
        return Outputs(
            self.group[rows],
            self.index[rows],
            self.appended_ms[rows],
            content,
            places,
            keys,
            visible_ms,
            received_ns,
        )


def concat(parts: list[Outputs]) -> Outputs:
    """All rows, in order. `parts` must not be empty."""
    names = parts[0].content
    return Outputs(
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.appended_ms for part in parts]),
        {name: np.concatenate([part.content[name] for part in parts]) for name in names},
        _concat_places([part.places for part in parts]),
        _concat_keys(parts),
        _concat_times([part.visible_ms for part in parts], parts),
        _concat_times([part.received_ns for part in parts], parts),
    )


def _concat_places(parts: list[Ints | None]) -> Ints | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _concat_times(times: list[Ints | None], parts: list[Outputs]) -> Ints | None:
    if all(each is None for each in times):
        return None
    return np.concatenate(
        [
            np.full(len(part), UNKNOWN, np.int64) if each is None else each
            for each, part in zip(times, parts, strict=True)
        ]
    )


def _concat_keys(parts: list[Outputs]) -> OutputKeys | None:
    if all(part.keys is None for part in parts):
        return None
    right, values = [], []
    for part in parts:
        none = OutputKeys(np.ones(len(part), bool), np.full(len(part), None))
        right.append((part.keys or none).is_right)
        values.append((part.keys or none).values)
    return OutputKeys(np.concatenate(right), np.concatenate(values))


class Unread:
    """Outputs that wait until everything appended before them has been read."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Outputs]] = []

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._parts)

    def add(self, rows: Outputs, partitions: Ints) -> None:
        """Queue rows. Rows of one partition must be added in offset order."""
        if len(rows):
            self._parts.append((rows.appended_ms << PARTITION_BITS | partitions, rows))

    def before(self, time_ms: int) -> Iterator[Outputs]:
        """The rows appended before a time."""
        for order, rows in self._parts:
            early = order < time_ms << PARTITION_BITS
            if early.any():
                yield rows if early.all() else rows.take(np.flatnonzero(early))

    def take_before(self, time_ms: int) -> list[Outputs]:
        """Remove and return the rows appended before a time: by LogAppendTime, within a millisecond
        by partition, within a partition by offset. This order is guaranteed only among outputs of
        one address."""
        limit = time_ms << PARTITION_BITS
        taken, left = [], []
        for order, rows in self._parts:
            early = order < limit
            if early.all():
                taken.append((order, rows))
                continue
            left.append((order[~early], rows.take(np.flatnonzero(~early))))
            if early.any():
                taken.append((order[early], rows.take(np.flatnonzero(early))))
        self._parts = left
        return _in_order(taken)


def _any_repeated(parts: list[Outputs]) -> bool:
    """Whether two rows have the same address. If not, no verdict depends on their order."""
    index = np.concatenate([rows.index for rows in parts])
    groups = by_value(np.concatenate([rows.group for rows in parts]))
    return any(not first_of_each(index[rows]).all() for _, rows in groups)


def _in_order(parts: list[tuple[Ints, Outputs]]) -> list[Outputs]:
    follow = all(each[-1] <= other[0] for (each, _), (other, _) in pairwise(parts))
    follow = follow and all((order[1:] >= order[:-1]).all() for order, _ in parts)
    if follow or not _any_repeated([rows for _, rows in parts]):
        return [rows for _, rows in parts]
    order = np.argsort(np.concatenate([order for order, _ in parts]), kind="stable")
    return [concat([rows for _, rows in parts]).take(order)]


class Waiting:
    """Outputs that no inputs explain yet, by group, in the order they were added."""

    def __init__(self) -> None:
        self._by_group: dict[int, list[Outputs]] = {}

    def __len__(self) -> int:
        return sum(len(rows) for parts in self._by_group.values() for rows in parts)

    def groups(self) -> list[int]:
        """Groups with waiting outputs."""
        return list(self._by_group)

    def places(self) -> Iterator[tuple[int, Ints, Ints]]:
        """Groups with waiting outputs, with the outputs' indices and LogAppendTimes."""
        for group, parts in self._by_group.items():
            index = np.concatenate([rows.index for rows in parts])
            yield group, index, np.concatenate([rows.appended_ms for rows in parts])

    def add(self, rows: Outputs) -> None:
        """Queue outputs of any groups."""
        for group, place in by_value(rows.group):
            self._by_group.setdefault(group, []).append(rows.take(place))

    def take(self, groups: Iterable[int]) -> Outputs | None:
        """Remove and return the outputs of some groups."""
        parts = [rows for group in groups for rows in self._by_group.pop(group)]
        return concat(parts) if parts else None

    def take_before(self, time_ms: int, waits_on: Callable[[int], bool]) -> Outputs | None:
        """Remove and return the outputs appended before a time, except in groups that wait on."""
        waiting = self.take([group for group in self._by_group if not waits_on(group)])
        if waiting is None:
            return None
        taken: Bools = waiting.appended_ms < time_ms
        self.add(waiting.take(np.flatnonzero(~taken)))
        return waiting.take(np.flatnonzero(taken)) if taken.any() else None


class UndecodableCopies:
    """Raw copies of undecodable values, until the inputs they copy are known.

    Stores 8 bytes of hash for each undecodable input, the newest 1,000,000.
    """

    def __init__(self) -> None:
        self._inputs: dict[int, int] = {}  # by hash: LogAppendTime of the first one
        self._waiting: list[tuple[str, int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add_input(self, value: bytes | None, appended_ms: int) -> None:
        """Store an input that cannot be decoded."""
        known = self._inputs.setdefault(hash(value), appended_ms)
        self._inputs[hash(value)] = min(known, appended_ms)
        if len(self._inputs) > MAX_UNDECODABLE:
            del self._inputs[next(iter(self._inputs))]

    def add_output(self, topic: str, value: bytes | None, appended_ms: int) -> None:
        """Queue a copy that cannot be decoded until its input is known."""
        self._waiting.append((topic, hash(value), appended_ms))

    def unexpected(self, frontier_ms: int, deadline_ms: int) -> list[tuple[str, int]]:
        """Topic and LogAppendTime of copies that no input appended up to one deadline after them
        explains; all inputs appended before the frontier are known."""
        limit_ms = frontier_ms - deadline_ms
        open_ones = [
            (topic, value, at_ms)
            for topic, value, at_ms in self._waiting
            if value not in self._inputs or self._inputs[value] > at_ms + deadline_ms
        ]
        self._waiting = [open_one for open_one in open_ones if open_one[2] >= limit_ms]
        return [(topic, at_ms) for topic, _value, at_ms in open_ones if at_ms < limit_ms]


@dataclass(frozen=True)
class Context:
    """Arguments shared by all oracles of a run. base_ms: a time near the inputs' (epoch ms),
    subtracted before times are summed. Without it, sums of five million times since 1970 would
    overflow 64 bits. sources: number of input partitions whose offsets are noted; 0 for none.
    run_id: the key of outputs over all records."""

    domain: DomainSpec
    names: Dictionaries
    base_ms: int = 0
    sources: int = 0
    run_id: str = ""


class OutputColumns:
    """Columns of a stage's output record: converts them to numbers and codes, and cells back to
    values for samples."""

    def __init__(self, context: Context, spec: StageSpec) -> None:
        domain, self._names = context.domain, context.names
        self._types = column_types(domain.codec.schema_json(spec.record))
        self._dictionaries = {
            name: self._names[origin(domain, spec, name)]
            for name, kind in self._types.items()
            if kind == "string" and name != RUN_ID
        }
        for kind in self._types.values():
            dtype_of(kind)

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def names(self) -> list[str]:
        """All columns except run_id, in the record's order."""
        return [name for name in self._types if name != RUN_ID]

    def is_text(self, name: str) -> bool:
        """Whether a column holds codes."""
        return name in self._dictionaries

    def of(self, decoded: Decoded, name: str) -> Column:
        """One column. Text that occurs in outputs only gets a code too, within bounds: the input
        that explains it may arrive later."""
        if name in self._dictionaries:
            return self._dictionaries[name].codes(decoded.coded(name), of_outputs=True)
        if dtype_of(self._types[name]) == np.float64:
            values = decoded.floats(name)
            return values.astype(np.float32) if self._types[name] == "float" else values
        return decoded.ints(name, null=NULL)

    def keys(self, decoded: Decoded, keys: Iterable[str]) -> list[Ints]:
        """Codes of the columns the stage groups by, even if they are not text."""
        return [self._names[key].codes(decoded.coded(key), of_outputs=True) for key in keys]

    def content(self, decoded: Decoded, names: Iterable[str]) -> Content:
        """Some columns by name."""
        return {name: self.of(decoded, name) for name in names}

    def code_of_null(self, name: str) -> int:
        """The code of null in a text column."""
        return self._dictionaries[name].code(None)

    def shown(self, name: str, cell: Any) -> Any:
        """The value of a cell in JSON: NaN is null, infinity is text."""
        if name in self._dictionaries:
            return self._dictionaries[name].value(int(cell))
        value = cell.item() if isinstance(cell, np.generic) else cell
        kind = self._types.get(name, "")
        if isinstance(value, float):
            return _float_shown(kind, value)
        if value == NULL:
            return None
        return bool(value) if kind == "boolean" else value


def _float_shown(kind: str, value: float) -> Any:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if kind == "boolean":
        return bool(value)
    if kind in ("int", "long") and value.is_integer():
        return int(value)
    # The shortest text of the same float: 0.1, not 0.10000000149011612.
    return float(str(np.float32(value))) if kind == "float" else value


def origin(domain: DomainSpec, spec: StageSpec, column: str) -> str:
    """Name of the input column from which a stage's text column takes its values."""
    if column in spec.columns:
        return spec.columns[column].rpartition(".")[2]
    for aggregate in spec.aggregates:
        if aggregate.column == column:
            return aggregate.of[0].rpartition(".")[2]
    is_added = spec.table is not None and column in spec.table.columns
    reads_rows = spec.kind in ("filter", "lookup", "decode") and not is_added
    if reads_rows and spec.reads[0] in domain.stage_names:
        return origin(domain, domain.stage(spec.reads[0]), column)
    return column
