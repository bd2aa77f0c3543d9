"""Computes the expected outputs of a closed window from its input rows: aggregates by keys, pairs
of records of two inputs, filters and tables over them, and aggregates or changes of those.

All of it is computed on whole columns; the results have one row per output.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from schemas.domain import SEQUENCE, Aggregate, StageSpec
from services.evaluator.columnar.column_mapping import (
    OFFSET,
    SOURCE,
    Column,
    Combination,
    ExpectedColumn,
    InputColumn,
    InputRows,
    RowSteps,
)
from services.evaluator.columnar.columns import UNKNOWN, Bools, Ints
from services.evaluator.expected.counted_windows import changed
from services.evaluator.expected.stages import NEVER

# Columns beside those of records, whose names have no space.
ARRIVAL, PARTITION = "number of arrival", "partition of the record"
_LAST = np.iinfo(np.int64).max
Rows = Mapping[int, InputRows | None]  # by index of the input


@dataclass(frozen=True)
class WindowResults:
    """Outputs, one row each, with the times of the contributing inputs.

    columns: contents. members: by index of the input, the row that each output is made of, if it is
    one of each input. copies: how often each output occurs, if it may occur several times.
    window_us: the latest scheduled time of all records in the windows that were joined, of an
    output that is or contains pairs. offsets: as in `Expected`.
    """

    columns: dict[str, ExpectedColumn]
    texts: frozenset[str]
    latest_ms: Ints
    inputs: Ints
    appended_sum: Ints
    scheduled_us: Ints
    closed_ms: int = 0
    members: dict[int, Ints] | None = None
    copies: Ints | None = None
    window_us: Ints | None = None
    offsets: Ints | None = None
    identity: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.latest_ms)

    def take(self, rows: Ints | Bools) -> "WindowResults":
        """The given rows."""
        members = None
        if self.members is not None:
            members = {kind: place[rows] for kind, place in self.members.items()}
        return replace(
            self,
            columns={name: taken(values, rows) for name, values in self.columns.items()},
            latest_ms=self.latest_ms[rows],
            inputs=self.inputs[rows],
            appended_sum=self.appended_sum[rows],
            scheduled_us=self.scheduled_us[rows],
            members=members,
            copies=None if self.copies is None else self.copies[rows],
            window_us=None if self.window_us is None else self.window_us[rows],
            offsets=None if self.offsets is None else self.offsets[:, rows],
        )

    def places(self, identity: list[Column], count: int) -> Ints:
        """Row of each of `count` identities; UNKNOWN if there is none."""
        if not len(self):
            return np.full(count, UNKNOWN, np.int64)
        mine = [self.columns[name].values for name in self.identity]
        both = [np.concatenate([own, other]) for own, other in zip(mine, identity, strict=True)]
        number, _first = numbered(both, len(self) + count)
        row_of = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
        row_of[number[: len(self)]] = np.arange(len(self))
        result: Ints = row_of[number[len(self) :]]
        return result


def taken(values: ExpectedColumn, rows: Ints | Bools) -> ExpectedColumn:
    scale = None if values.scale is None else values.scale[rows]
    return ExpectedColumn(values.values[rows], scale)


def numbered(columns: list[Column], count: int) -> tuple[Ints, Ints]:
    """A number from 0 for every distinct row of `count`, and the index at which each number occurs
    first. Rows without columns are equal."""
    number = np.zeros(count, np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        number = number * max(len(values), 1) + code
        number = np.unique(number, return_inverse=True)[1]
    first: Ints = np.unique(number, return_index=True)[1]
    return number, first


def concatenated(parts: list[WindowResults]) -> WindowResults:
    """Outputs of several windows together."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else no_results()

    def of(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    members: dict[int, Ints] = {}
    for kind in parts[0].members or ():
        members[kind] = np.concatenate([(part.members or {})[kind] for part in parts])
    return replace(
        parts[0],
        columns={
            name: _joined([part.columns[name] for part in parts]) for name in parts[0].columns
        },
        latest_ms=of("latest_ms"),
        inputs=of("inputs"),
        appended_sum=of("appended_sum"),
        scheduled_us=of("scheduled_us"),
        members=members,
        window_us=None if parts[0].window_us is None else of("window_us"),
        offsets=_offsets_of(parts),
    )


def _offsets_of(parts: list[WindowResults]) -> Ints | None:
    """Offsets of several windows together."""
    known = [part.offsets for part in parts if part.offsets is not None]
    return np.concatenate(known, axis=1) if known else None


def _joined(parts: list[ExpectedColumn]) -> ExpectedColumn:
    scales = [part.scale for part in parts if part.scale is not None]
    scale = np.concatenate(scales) if len(scales) == len(parts) else None
    return ExpectedColumn(np.concatenate([part.values for part in parts]), scale)


def no_results() -> WindowResults:
    """An empty result."""
    empty = np.empty(0, np.int64)
    return WindowResults({}, frozenset(), empty, empty, empty, empty, members={})


def cells_at(values: ExpectedColumn | None, place: Ints) -> ExpectedColumn:
    """Cells at some indices; NaN for UNKNOWN."""
    result, scale = np.full(len(place), np.nan), np.full(len(place), np.nan)
    known = place != UNKNOWN
    if values is not None and known.any():
        result[known] = values.values[place[known]]
        scale[known] = 0 if values.scale is None else values.scale[place[known]]
    return ExpectedColumn(result, scale)


def ints_at(column: Ints, place: Ints, otherwise: int) -> Ints:
    """Cells at some indices; `otherwise` for UNKNOWN."""
    result: Ints = np.full(len(place), otherwise, np.int64)
    known = place != UNKNOWN
    result[known] = column[place[known]]
    return result


def joined_rows(parts: list[InputRows], until_ms: int) -> InputRows | None:
    """Rows of one input appended up to a time, in append order: by LogAppendTime, partition and
    offset; None if there are none."""
    parts = [part.take(part.appended_ms <= until_ms) for part in parts]
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    rows = InputRows(
        parts[0].kind,
        np.concatenate([part.appended_ms for part in parts]),
        np.concatenate([part.scheduled_us for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.event_ms for part in parts]),
        np.concatenate([part.digest for part in parts]),
        {n: np.concatenate([part.codes[n] for part in parts]) for n in parts[0].codes},
        {n: np.concatenate([part.numbers[n] for part in parts]) for n in parts[0].numbers},
    )
    return rows.take(np.lexsort((rows.column(ARRIVAL), rows.column(PARTITION), rows.appended_ms)))


@dataclass(frozen=True)
class Recipe:
    """How the outputs of a stage are computed.

    core: an aggregate of inputs, or a window_join. steps: filters and tables over it. last: an
    aggregate or change of that, or core itself. last_steps: filters and tables over it.
    sources: for each aggregate of the core, the input columns it is computed from. columns: source
    of each column of a window_join. base_ms: subtracted before times are summed. partitions: number
    of input partitions whose offsets are noted; 0 for none.
    """

    core: StageSpec
    steps: RowSteps
    last: StageSpec
    last_steps: RowSteps
    sources: dict[str, list[InputColumn]]
    columns: dict[str, InputColumn]
    base_ms: int
    partitions: int = 0

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify an output within its window."""
        sequences = [name for name, each in self.columns.items() if each.column == SEQUENCE]
        return tuple(sequences) if self.last.kind == "window_join" else self.last.keys

    @cached_property
    def _kinds(self) -> list[int]:
        """Indices of the inputs of which an aggregate needs a row each."""
        return sorted({each.kind for every in self.sources.values() for each in every})

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """Those of an output record's columns that are computed here."""
        computed = {*self.last.keys, *(aggregate.column for aggregate in self.last.aggregates)}
        computed |= {*self.last.columns, *(change.column for change in self.last.changes)}
        computed |= self.last_steps.added()
        return [name for name in names if name in computed]

    def narrowed(self, rows: InputRows, arrived: int) -> InputRows:
        """Rows reduced to the columns that are needed, and numbered from `arrived`."""
        used = {each.column for every in self.sources.values() for each in every}
        used |= {each.column for each in self.columns.values()} | {*self.core.keys}
        used |= {*self.core.once_per}
        return replace(
            rows,
            codes={name: column for name, column in rows.codes.items() if name in used},
            numbers={name: column for name, column in rows.numbers.items() if name in used}
            | {ARRIVAL: np.arange(arrived, arrived + len(rows))}
            | {PARTITION: rows.numbers.get(PARTITION, np.zeros(len(rows), np.int64))}
            | {name: rows.numbers[name] for name in (SOURCE, OFFSET) if self.partitions},
        )

    def results(self, rows: Rows, closed_ms: int) -> WindowResults:
        """Outputs of a window with these rows."""
        result = self._core_results(rows, None)
        result = self._identified(_applied(self.last_steps, result))
        return replace(result, closed_ms=closed_ms)

    def results_of_windows(
        self, rows: Rows, masks: Mapping[int, Mapping[int, Bools]], closed_ms: int
    ) -> WindowResults:
        """Outputs of a window of `last`, given the rows of each window of `core` as masks."""
        parts = [
            _applied(self.steps, self._core_results(rows, masks[start])) for start in sorted(masks)
        ]
        if self.last.kind == "change":
            aggregate = self._changes(parts)
        else:
            aggregate = self._aggregate_of(rows, concatenated(parts))
        aggregate = self._identified(_applied(self.last_steps, aggregate))
        return replace(aggregate, closed_ms=closed_ms)

    def _identified(self, window_results: WindowResults) -> WindowResults:
        """Every output once; of repeated pairs the first, with their number in `copies`."""
        if self.last.kind == "window_join" and len(window_results):
            columns = [window_results.columns[name].values for name in self.identity]
            number, first = numbered(columns, len(window_results))
            window_results = replace(window_results.take(first), copies=np.bincount(number))
        return replace(window_results, identity=self.identity)

    def _core_results(self, rows: Rows, masks: Mapping[int, Bools] | None) -> WindowResults:
        """Outputs of the core for the rows of one window: all rows, or those of the masks."""
        places = {
            kind: np.arange(len(each)) if masks is None else np.flatnonzero(masks[kind])
            for kind, each in rows.items()
            if each is not None
        }
        chosen = {kind: each for kind, each in rows.items() if each is not None}
        if self.core.kind == "window_join":
            return self._pairs(chosen, places)
        return self._aggregates(chosen, places)

    def _pairs(self, rows: dict[int, InputRows], places: dict[int, Ints]) -> WindowResults:
        kinds = [column.kind for column in self.columns.values() if column.column == SEQUENCE]
        empty = np.empty(0, np.int64)
        left, right = (places.get(kind, empty) for kind in kinds)
        if not len(left) or not len(right):
            return no_results()
        each, other = (rows[kind] for kind in kinds)
        keys = [
            np.concatenate([each.column(name)[left], other.column(name)[right]])
            for name in self.core.keys
        ]
        number, _first = numbered(keys, len(left) + len(right))
        in_left, in_right = matches(number[: len(left)], number[len(left) :])
        members = {kinds[0]: left[in_left], kinds[1]: right[in_right]}
        times = {kind: rows[kind].appended_ms[place] for kind, place in members.items()}
        columns = {
            name: ExpectedColumn(rows[source.kind].column(source.column)[members[source.kind]])
            for name, source in self.columns.items()
        }
        columns |= {n: ExpectedColumn(each.column(n)[members[kinds[0]]]) for n in self.core.keys}
        texts = {name for name, s in self.columns.items() if s.column in rows[s.kind].codes}
        texts |= {name for name in self.core.keys if name in each.codes}
        for spec in self.core.aggregates:
            sources = self.sources[spec.column]
            values = [rows[s.kind].column(s.column)[members[s.kind]] for s in sources]
            is_float = any(value.dtype.kind == "f" for value in values)
            appended = [times[source.kind] for source in sources]
            columns[spec.column] = Combination(spec, is_float).of(values, appended)
            if sources[0].column in rows[sources[0].kind].codes and spec.function == "first":
                texts.add(spec.column)
        scheduled = [rows[kind].scheduled_us[place] for kind, place in members.items()]
        of_window = max(each.scheduled_us[left].max(), other.scheduled_us[right].max())
        count = len(in_left)
        pairs = [(rows[kind], place, np.arange(count)) for kind, place in members.items()]
        return WindowResults(
            columns,
            frozenset(texts),
            np.maximum.reduce([*times.values()]),
            np.full(count, 2),
            np.add.reduce([time - self.base_ms for time in times.values()]),
            np.maximum.reduce(scheduled),
            members=members,
            window_us=np.full(count, of_window),
            offsets=self._offsets(pairs, count),
        )

    def _aggregates(self, rows: dict[int, InputRows], places: dict[int, Ints]) -> WindowResults:
        """An aggregate of input rows, for keys with a row of every input."""
        places = {kind: self._counted(rows[kind], place) for kind, place in places.items()}
        if not all(len(places.get(kind, ())) for kind in self._kinds):
            return no_results()
        keys = [
            np.concatenate([rows[kind].column(name)[places[kind]] for kind in self._kinds])
            for name in self.core.keys
        ]
        bounds = np.cumsum([0, *(len(places[kind]) for kind in self._kinds)])
        number, first = numbered(keys, int(bounds[-1]))
        count = len(first)
        number_of = {kind: number[bounds[n] : bounds[n + 1]] for n, kind in enumerate(self._kinds)}
        appended_ms = {kind: rows[kind].appended_ms[places[kind]] for kind in self._kinds}
        columns = {n: ExpectedColumn(k[first]) for n, k in zip(self.core.keys, keys, strict=True)}
        texts = {n for n in self.core.keys if n in rows[self._kinds[0]].codes}
        for spec in self.core.aggregates:
            sources = self.sources[spec.column]
            values = [rows[s.kind].column(s.column)[places[s.kind]] for s in sources]
            group = np.concatenate([number_of[source.kind] for source in sources])
            times = np.concatenate([appended_ms[source.kind] for source in sources])
            columns[spec.column] = by_group(spec, np.concatenate(values), group, times, count)
            if sources[0].column in rows[sources[0].kind].codes and spec.function == "first":
                texts.add(spec.column)
        scheduled = [rows[kind].scheduled_us[places[kind]] for kind in self._kinds]
        every = np.concatenate([appended_ms[kind] for kind in self._kinds])
        result = self._with_times(columns, texts, number, every, np.concatenate(scheduled))
        grouped = [(rows[kind], places[kind], number_of[kind]) for kind in self._kinds]
        result = replace(result, offsets=self._offsets(grouped, count))
        has_all = [np.bincount(number_of[kind], minlength=count) > 0 for kind in self._kinds]
        return result.take(np.logical_and.reduce(has_all))

    def _counted(self, rows: InputRows, place: Ints) -> Ints:
        """The rows that count: one per value of `once_per`, if that is set."""
        if not self.core.once_per or not len(place):
            return place
        names = (*self.core.keys, *self.core.once_per)
        columns = [rows.column(name)[place] for name in names]
        return place[np.sort(numbered(columns, len(place))[1])]

    def _aggregate_of(self, rows: Rows, window_results: WindowResults) -> WindowResults:
        """An aggregate of pairs. Each record contributes once, however many pairs it is in."""
        if not len(window_results):
            return no_results()
        assert window_results.members is not None
        keys = [window_results.columns[name].values for name in self.last.keys]
        number, first = numbered(keys, len(window_results))
        columns = {name: taken(window_results.columns[name], first) for name in self.last.keys}
        texts = {name for name in self.last.keys if name in window_results.texts}
        for spec in self.last.aggregates:
            values = window_results.columns[spec.of[0]].values
            times = (
                self._pair_order(rows, window_results)
                if spec.function == "first"
                else window_results.latest_ms
            )
            columns[spec.column] = by_group(spec, values, number, times, len(first))
            if spec.of[0] in window_results.texts and spec.function == "first":
                texts.add(spec.column)
        groups, appended_ms, scheduled_us, grouped = [], [], [], []
        for kind, place in window_results.members.items():
            mine = rows[kind]
            assert mine is not None
            member = np.unique(number * len(mine) + place)
            groups.append(member // len(mine))
            appended_ms.append(mine.appended_ms[member % len(mine)])
            scheduled_us.append(mine.scheduled_us[member % len(mine)])
            grouped.append((mine, member % len(mine), member // len(mine)))
        result = self._with_times(
            columns,
            texts,
            np.concatenate(groups),
            np.concatenate(appended_ms),
            np.concatenate(scheduled_us),
        )
        assert window_results.window_us is not None
        window_us = np.full(len(first), NEVER)
        np.maximum.at(window_us, number, window_results.window_us)
        offsets = self._offsets(grouped, len(first))
        return replace(result, window_us=window_us, offsets=offsets)

    def _pair_order(self, rows: Rows, window_results: WindowResults) -> Ints:
        """A number for each pair: pairs are ordered by their record that was appended later, and
        those of the same by the other one."""
        assert window_results.members is not None
        every = [(rows[kind], place) for kind, place in sorted(window_results.members.items())]
        times = [np.empty(0, np.int64) if each is None else each.appended_ms for each, _ in every]
        order = np.argsort(np.concatenate(times), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        begins = np.cumsum([0, *map(len, times)])
        ranks = [rank[begin + place] for begin, (_, place) in zip(begins, every, strict=False)]
        later, other = np.maximum.reduce(ranks), np.minimum.reduce(ranks)
        number: Ints = later * len(order) + other
        return number

    def _changes(self, parts: list[WindowResults]) -> WindowResults:
        """Changes of the newest part against earlier ones. A change against a part without records
        is null."""
        newest = parts[-1]
        if not len(newest):
            return no_results()
        keys = [newest.columns[name].values for name in self.last.keys]
        places = [
            replace(part, identity=self.last.keys).places(keys, len(newest)) for part in parts
        ]
        columns = {name: newest.columns[name] for name in self.last.keys}
        for change in self.last.changes:
            old, place = parts[-1 - change.back], places[-1 - change.back]
            then = cells_at(old.columns.get(change.of), place)
            columns[change.column] = changed(cells_at(newest.columns[change.of], places[-1]), then)
        latest = [
            ints_at(part.latest_ms, at, NEVER) for part, at in zip(parts, places, strict=True)
        ]
        scheduled = [
            ints_at(p.scheduled_us, at, NEVER) for p, at in zip(parts, places, strict=True)
        ]
        inputs = [ints_at(part.inputs, at, 0) for part, at in zip(parts, places, strict=True)]
        total = [ints_at(part.appended_sum, at, 0) for part, at in zip(parts, places, strict=True)]
        return WindowResults(
            columns,
            newest.texts & {*self.last.keys},
            np.maximum.reduce(latest),
            np.add.reduce(inputs),
            np.add.reduce(total),
            np.maximum.reduce(scheduled),
            offsets=self._offsets_of_parts(parts, places),
        )

    def _offsets(self, grouped: list[tuple[InputRows, Ints, Ints]], count: int) -> Ints | None:
        """By source and output, the highest offset of the rows at some places with its number.
        grouped: of each input its rows, places and numbers."""
        if not self.partitions:
            return None
        result = np.full((self.partitions, count), UNKNOWN, np.int64)
        for rows, place, number in grouped:
            source = rows.numbers[SOURCE][place]
            np.maximum.at(result, (source, number), rows.numbers[OFFSET][place])
        return result

    def _offsets_of_parts(self, parts: list[WindowResults], places: list[Ints]) -> Ints | None:
        """The same of rows of several windows."""
        if not self.partitions:
            return None
        result = np.full((self.partitions, len(places[0])), UNKNOWN, np.int64)
        for part, place in zip(parts, places, strict=True):
            known = np.flatnonzero(place != UNKNOWN)
            if part.offsets is not None and len(known):
                mine = part.offsets[:, place[known]]
                result[:, known] = np.maximum(result[:, known], mine)
        return result

    def _with_times(
        self,
        columns: dict[str, ExpectedColumn],
        texts: set[str],
        number: Ints,
        appended_ms: Ints,
        scheduled_us: Ints,
    ) -> WindowResults:
        """Outputs with the times of the rows with their number."""
        count = int(number.max()) + 1
        latest_ms, latest_us = np.full((2, count), NEVER)
        np.maximum.at(latest_ms, number, appended_ms)
        np.maximum.at(latest_us, number, scheduled_us)
        total = np.zeros(count, np.int64)
        np.add.at(total, number, appended_ms - self.base_ms)
        inputs = np.bincount(number, minlength=count)
        return WindowResults(columns, frozenset(texts), latest_ms, inputs, total, latest_us)


def matches(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Indices of all pairs of equal numbers, ordered by index in `left`, then in `right`."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    begin = np.searchsorted(ordered, left, side="left")
    count = np.searchsorted(ordered, left, side="right") - begin
    in_left = np.repeat(np.arange(len(left)), count)
    offset = np.arange(len(in_left)) - np.repeat(np.cumsum(count) - count, count)
    return in_left, order[np.repeat(begin, count) + offset]


def by_group(
    spec: Aggregate, values: Column, number: Ints, times: Ints, count: int
) -> ExpectedColumn:
    """An aggregate of values grouped by number (below `count`). times: append time of each
    value."""
    is_float = values.dtype.kind == "f"
    if spec.function == "count":
        return ExpectedColumn(np.bincount(number, minlength=count))
    if spec.function == "count_distinct":
        first = numbered([number, values], len(number))[1]
        return ExpectedColumn(np.bincount(number[first], minlength=count))
    total: Column = np.zeros(count, np.float64 if is_float else np.int64)
    if spec.function == "first":
        order = np.argsort(times, kind="stable")[::-1]
        total[number[order]] = values[order]  # the last assignment wins
        return ExpectedColumn(total)
    if spec.function in ("min", "max"):
        least, most = (np.nan, -np.inf) if is_float else (_LAST, NEVER)
        total[:] = least if spec.function == "min" else most
        (np.fmin if spec.function == "min" else np.maximum).at(total, number, values)
        return ExpectedColumn(total)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(total, number, values)
    size = np.bincount(number, np.abs(values), count).astype(np.float64)
    if spec.function == "sum":
        return ExpectedColumn(total, size if is_float else None)
    records = np.maximum(np.bincount(number, minlength=count), 1)
    return ExpectedColumn(total / records, size / records)


def _applied(steps: RowSteps, window_results: WindowResults) -> WindowResults:
    """Outputs that pass the filters, with the columns of the tables."""
    if not steps.changes_rows or not len(window_results):
        return window_results
    codes = {n: v.values for n, v in window_results.columns.items() if n in window_results.texts}
    numbers = {
        n: v.values for n, v in window_results.columns.items() if n not in window_results.texts
    }
    keep, codes, numbers = steps.apply(codes, numbers, len(window_results))
    added = (codes | numbers).keys() - window_results.columns.keys()
    columns = window_results.columns | {
        name: ExpectedColumn((codes | numbers)[name]) for name in added
    }
    return replace(window_results, columns=columns, texts=frozenset(codes)).take(keep)
