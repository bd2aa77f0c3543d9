"""The oracles of stages that need no window: copy, decode, filter and lookup, whose outputs are
single input records, and the join, with one output per set of records, one of each input, with the
same keys and event time.

Outputs of single records are addressed by their sequence number, those of a join by event time and
keys. Of repeated records, and of several of one input with the same keys and event time, the first
in topic order counts.
"""

from typing import Any

import numpy as np

from schemas import fault_rules
from schemas.content import DUPLICATE, Faults
from schemas.domain import SEQUENCE, StageSpec
from services.evaluator.columnar.column_mapping import (
    OFFSET,
    SOURCE,
    Column,
    Combination,
    ExpectedColumn,
    InputColumn,
    InputRows,
    NeededColumns,
    RowSteps,
    column_types,
    dtype_of,
    equal_columns,
    nullable_columns,
)
from services.evaluator.columnar.columns import (
    UNKNOWN,
    Bools,
    CellGroups,
    Columns,
    Group,
    Ints,
    first_of_each,
)
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.outputs import Context, OutputColumns, Outputs
from services.evaluator.columnar.value_codes import KeyCodes
from services.evaluator.expected.stages import (
    GROUP_CELLS,
    NEVER,
    Expected,
    KeyedOracle,
    Oracle,
    add_offsets,
    kinds_of,
    offset_cells,
    offsets_at,
)
from services.runtime.counting import by_value

BLOCK = 1 << 16  # sequence numbers per block
_HEAD: dict[str, tuple[Any, Any]] = {
    "seen": (np.uint8, 0),
    "kind": (np.int8, UNKNOWN),
    "appended_ms": (np.int64, 0),
    "scheduled_us": (np.int64, 0),
}


class SequenceState:
    """Every input record by sequence number, in blocks: its times and compared columns.

    A number is stored as a code too if it is the key of a table.
    """

    def __init__(self, context: Context, needed: NeededColumns, has_digests: bool) -> None:
        self._kinds = dict(_HEAD)
        self._coded: set[str] = set()
        self._numbers: set[str] = set()
        if has_digests:
            self._kinds["digest"] = (np.int64, 0)
        self.sources = context.sources
        if self.sources:
            self._kinds |= {SOURCE: (np.int16, UNKNOWN), OFFSET: (np.int64, UNKNOWN)}
        for each in context.domain.inputs:
            types = column_types(context.domain.codec.schema_json(each.record))
            for name in sorted((needed.values | needed.codes) & types.keys()):
                if types[name] == "string" or name in needed.codes:
                    self._kinds[_code(name)] = (np.int32, UNKNOWN)
                    self._coded.add(name)
                if types[name] != "string" and name in needed.values:
                    self._kinds[_number(name)] = (dtype_of(types[name]), 0)
                    self._numbers.add(name)
        self.blocks: dict[int, Columns] = {}
        self.sizes: dict[int, int] = {}  # by block: index of the last record + 1
        self.newest_ms: dict[int, int] = {}
        self._touched: set[int] = set()
        self._evicted_before: int | None = None

    def add(self, rows: InputRows) -> None:
        """Store input rows."""
        for block, stretch in by_value(rows.sequence // BLOCK):
            if self._evicted_before is None or block >= self._evicted_before:
                self._add_block(block, stretch, rows)

    def _add_block(self, block: int, stretch: slice | Ints, rows: InputRows) -> None:
        cells = self.blocks.get(block)
        if cells is None:
            cells = self.blocks[block] = Columns(self._kinds, BLOCK)
        picked: slice | Ints = stretch
        at = rows.sequence[stretch] - block * BLOCK
        new = first_of_each(at) & (cells["seen"][at] == 0)
        if not new.all():
            picked, at = np.arange(len(rows))[stretch][new], at[new]
        if not len(at):
            return
        self._touched.add(block)
        self.sizes[block] = max(self.sizes.get(block, 0), int(at.max()) + 1)
        newest_ms = int(rows.appended_ms[picked].max())
        self.newest_ms[block] = max(self.newest_ms.get(block, NEVER), newest_ms)
        cells["seen"][at] = 1
        cells["kind"][at] = rows.kind
        cells["appended_ms"][at] = rows.appended_ms[picked]
        cells["scheduled_us"][at] = rows.scheduled_us[picked]
        if "digest" in self._kinds:
            cells["digest"][at] = rows.digest[picked]
        if self.sources:
            cells[SOURCE][at] = rows.numbers[SOURCE][picked]
            cells[OFFSET][at] = rows.numbers[OFFSET][picked]
        for name in self._coded:
            if name in rows.codes:
                cells[_code(name)][at] = rows.codes[name][picked]
        for name in self._numbers:
            if name in rows.numbers:
                cells[_number(name)][at] = rows.numbers[name][picked]

    def has(self, name: str) -> bool:
        """Whether a column is stored."""
        return _number(name) in self._kinds or _code(name) in self._kinds

    def is_code(self, name: str) -> bool:
        """Whether a column is stored as codes only."""
        return _number(name) not in self._kinds

    def column(self, block: int, name: str, at: Ints) -> Column:
        """One column of the records at some indices of a block: numbers, or codes of text."""
        place = _code(name) if self.is_code(name) else _number(name)
        column: Column = self.blocks[block][place][at]
        return column

    def columns(self, block: int, at: Ints) -> tuple[dict[str, Ints], dict[str, Column]]:
        """Code columns and numbers, at some indices of a block."""
        cells = self.blocks[block]
        codes = {name: cells[_code(name)][at] for name in self._coded}
        return codes, {name: cells[_number(name)][at] for name in self._numbers}

    def take_touched(self) -> set[int]:
        """Blocks to which records were added since the last call."""
        taken, self._touched = self._touched, set()
        return taken

    def evict(self, before: int) -> None:
        """Remove the blocks below `before`."""
        self._evicted_before = before
        for block in [block for block in self.blocks if block < before]:
            del self.blocks[block], self.newest_ms[block], self.sizes[block]

    def cells(self) -> int:
        """Cells in memory."""
        return sum(cells.size + GROUP_CELLS for cells in self.blocks.values())


def _code(name: str) -> str:
    """The place of a column's codes."""
    return f"#{name}"


def _number(name: str) -> str:
    """The place of a column's numbers."""
    return f".{name}"


class SingleRows(Oracle):
    """The oracle of a copy, decode, filter or lookup.

    steps: filters and lookups of this stage and of those before it. duplicated: records sent twice
    on purpose explain one or two outputs, because a pipeline may or may not remove duplicates. A
    third output is a duplicate.
    """

    state: SequenceState

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        state: SequenceState,
        steps: RowSteps,
        duplicated: tuple[Faults, int] | None,
    ) -> None:
        self.spec = spec
        self.state = state
        self._steps = steps
        domain, self._names = context.domain, context.names
        self._duplicated = duplicated
        inputs = [each.name for each in domain.inputs_of(spec.name)]
        self._keys = [each.key for each in domain.inputs]
        reads = np.array([each.name in inputs for each in domain.inputs] + [False])
        self._reads = None if reads[:-1].all() else reads  # the last is for no input
        self._compared: list[str] = []
        self._null: dict[str, Bools] = {}  # by column: for which inputs it is null
        self._masked: list[str] = []  # numeric columns that may be null
        self._columns: OutputColumns | None = None
        if spec.kind == "copy":
            return
        self._columns = OutputColumns(context, spec)
        self._compared = [name for name in self._columns.names() if name != SEQUENCE]
        types = [column_types(domain.codec.schema_json(each.record)) for each in domain.inputs]
        for name in self._compared:
            has = [steps.has(name, in_input=name in every) for every in types]
            if not all(has):
                self._null[name] = np.array([not ha for ha in has] + [True])
        self._code_of_null = {
            name: self._columns.code_of_null(name)
            for name in self._null
            if self._columns.is_text(name)
        }
        nullable = nullable_columns(domain.codec.schema_json(spec.record)) | self._null.keys()
        self._masked = [
            name for name in self._compared if name in nullable and not self._columns.is_text(name)
        ]

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:
        """Addresses and compared columns of decoded output records."""
        sequence = decoded.ints(SEQUENCE)
        group, index = sequence // BLOCK, sequence % BLOCK
        if self._columns is None:
            return Outputs(group, index, appended_ms, {"digest": digest})
        content = self._columns.content(decoded, self._compared)
        for name in self._masked:
            nulls = decoded.nulls(name)
            content[f"{name} is null"] = np.zeros(len(decoded), bool) if nulls is None else nulls
        return Outputs(group, index, appended_ms, content)

    def size(self, group: int) -> int:
        """Upper bound of the indices in a block."""
        return self.state.sizes.get(group, 0)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at some indices of a block."""
        cells = self.state.blocks[group]
        implied = cells["seen"][at] > 0
        if self._reads is not None:
            implied &= self._reads[cells["kind"][at]]
        if self._steps.changes_rows:
            codes, numbers = self.state.columns(group, at)
            implied &= self._steps.apply(codes, numbers, len(at))[0]
        appended_ms = cells["appended_ms"][at]
        each = np.ones(len(at), np.int64)
        offsets = None
        if self.state.sources:
            sources = np.arange(self.state.sources)[:, None]
            offsets = np.where(cells[SOURCE][at] == sources, cells[OFFSET][at], UNKNOWN)
        scheduled_us = cells["scheduled_us"][at]
        return Expected(implied, appended_ms, each, appended_ms, scheduled_us, 0, offsets=offsets)

    def same(self, rows: Outputs, tolerance: float) -> Bools:  # noqa: ARG002
        """Which rows are equal to the record that they come from."""
        group, at = int(rows.group[0]), rows.index
        cells = self.state.blocks[group]
        if self._columns is None:
            bytes_are_equal: Bools = cells["digest"][at] == rows.content["digest"]
            return bytes_are_equal
        kind = cells["kind"][at]
        equal = np.ones(len(rows), bool)
        for name, expected in self._expected_columns(group, at).items():
            null = self._null[name][kind] if name in self._null else None
            if self._columns.is_text(name):
                implied = expected
                if null is not None:
                    implied = np.where(null, self._code_of_null[name], expected)
                equal &= rows.content[name] == implied
                continue
            result = equal_columns(rows.content[name], expected)
            if name in self._masked:
                is_null = rows.content[f"{name} is null"]
                result = ~is_null & result if null is None else (is_null == null) & (null | result)
            equal &= result
        return equal

    def copies(self, group: int, index: Ints) -> Ints | None:
        """Two for records that were sent twice on purpose."""
        if self._duplicated is None:
            return None
        rule, seed = self._duplicated
        kinds = fault_rules.kinds(rule, seed, group * BLOCK + index)
        return np.where(kinds == DUPLICATE, 2, 1)

    def expected_values(self, group: int, index: int) -> dict[str, Any]:
        """The expected columns."""
        if self._columns is None:
            return {"value": "the bytes of the input"}
        at = np.array([index])
        kind = int(self.state.blocks[group]["kind"][index])
        return {
            name: None
            if name in self._null and self._null[name][kind]
            else self._columns.shown(name, column[0])
            for name, column in self._expected_columns(group, at).items()
        }

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The columns of an output."""
        if self._columns is None:
            return {"value": "other bytes"}
        result = {}
        for name in self._compared:
            is_null = name in self._masked and rows.content[f"{name} is null"][row]
            result[name] = None if is_null else self._columns.shown(name, rows.content[name][row])
        return result

    def address(self, group: int, index: int) -> dict[str, Any]:
        """The sequence number, and the key of the input record."""
        sequence = {"sequence": group * BLOCK + index}
        cells = self.state.blocks.get(group)
        if cells is None or not cells["seen"][index]:
            return sequence
        key = self.key_column(group, index)
        if key in self._compared:
            return sequence | {key: self.expected_values(group, index)[key]}
        cell = self.state.column(group, key, np.array([index]))[0].item()
        return sequence | {key: self._names[key].value(cell) if self.state.is_code(key) else cell}

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The sequence number, regardless of whether its input has been read."""
        return {"sequence": int(rows.group[row]) * BLOCK + int(rows.index[row])}

    def key_column(self, group: int, index: int) -> str:
        """The stage's key; for a copy, the key of the input."""
        return self.spec.key or self._keys[int(self.state.blocks[group]["kind"][index])]

    def _expected_columns(self, group: int, at: Ints) -> dict[str, Column]:
        """The compared columns of records; an arbitrary value where a column is null."""
        if not self._steps.changes_rows:
            names = [name for name in self._compared if self.state.has(name)]
            result = {name: self.state.column(group, name, at) for name in names}
        else:
            codes, numbers = self.state.columns(group, at)
            _keep, codes, numbers = self._steps.apply(codes, numbers, len(at))
            result = codes | numbers
        none = np.zeros(len(at), np.int64)
        return {name: result.get(name, none) for name in self._compared}


class JoinState:
    """By event time and keys: the append time of the first record of each input, and the columns
    that the output needs from it. Bounded by `evict`.

    kinds: indices of the inputs. sources: input columns that outputs are made of, with dtype.
    """

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        sources: dict[InputColumn, Any],
        steps: RowSteps,
    ) -> None:
        kinds = kinds_of(context.domain, spec)
        self.keys = KeyCodes([context.names[key] for key in spec.keys])
        self.kinds = kinds
        self._names = spec.keys
        self._sources = sources
        self._steps = steps
        cells: dict[str, tuple[Any, Any]] = {"scheduled_us": (np.int64, NEVER)}
        cells |= {f"appended_ms {kind}": (np.int64, NEVER) for kind in kinds}
        cells |= {str(source): (dtype, 0) for source, dtype in sources.items()}
        cells |= offset_cells(context.sources)
        self.offset_sources = context.sources
        self.instants = CellGroups(cells)
        self.newest_ms: dict[int, int] = {}
        self._touched: set[int] = set()
        self._evicted_before: int | None = None

    def add(self, rows: InputRows) -> None:
        """Store input rows. Raises TooMuchStateError."""
        if rows.kind not in self.kinds:
            return
        rows = self._steps.applied(rows)
        if not len(rows):
            return
        key = self.keys.of([rows.codes[name] for name in self._names])
        every = np.arange(len(rows))
        for instant, stretch in by_value(rows.event_ms):
            if self._evicted_before is None or instant >= self._evicted_before:
                self._add_instant(instant, rows, key, every[stretch])

    def _add_instant(self, instant: int, rows: InputRows, key: Ints, picked: Ints) -> None:
        cells, at = self.instants.add(instant, key[picked], len(self.keys))
        appended_ms = cells[f"appended_ms {rows.kind}"]
        new = first_of_each(at) & (appended_ms[at] == NEVER)
        picked, at = picked[new], at[new]
        if not len(at):
            return
        self._touched.add(instant)
        newest_ms = int(rows.appended_ms[picked].max())
        self.newest_ms[instant] = max(self.newest_ms.get(instant, NEVER), newest_ms)
        appended_ms[at] = rows.appended_ms[picked]
        np.maximum.at(cells["scheduled_us"], at, rows.scheduled_us[picked])
        add_offsets(cells, at, rows, picked)
        for source in self._sources:
            if source.kind == rows.kind:
                cells[str(source)][at] = rows.column(source.column)[picked]

    def take_touched(self) -> set[int]:
        """Event times at which a record was added since the last call."""
        taken, self._touched = self._touched, set()
        return taken

    def evict(self, before: int) -> None:
        """Remove the event times before `before`."""
        self._evicted_before = before
        for instant in self.instants.evict(before):
            self.newest_ms.pop(instant, None)

    def cells(self) -> int:
        """Cells in memory."""
        return self.instants.size + GROUP_CELLS * len(self.instants)


class JoinOracle(KeyedOracle):
    """The oracle of a join."""

    state: JoinState

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        state: JoinState,
        combinations: list[tuple[Combination, list[InputColumn]]],
    ) -> None:
        self.spec = spec
        self.state = state
        self._combinations = combinations
        self._base_ms = context.base_ms
        self.columns = OutputColumns(context, spec)
        self._event_time = context.domain.inputs_of(spec.name)[0].event_time

    @property
    def compared(self) -> list[str]:
        """Columns that outputs are compared by."""
        return [aggregate.column for aggregate in self.spec.aggregates]

    def addresses(self, decoded: Decoded) -> tuple[Ints, Ints]:
        """Event times and key codes."""
        keys = self.columns.keys(decoded, self.spec.keys)
        index = self.state.keys.of(keys, of_outputs=True)
        return decoded.ints(self._event_time), index

    def cells_of(self, group: int) -> Group | None:
        """The cells of an event time."""
        return self.state.instants.get(group)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at some indices."""
        cells, base_ms = self.state.instants[group], self._base_ms
        times = [cells[f"appended_ms {kind}"][at] for kind in self.state.kinds]
        implied: Bools = np.logical_and.reduce([time != NEVER for time in times])
        total = np.where(implied, np.add.reduce([time - base_ms for time in times]), 0)
        return Expected(
            implied,
            np.maximum.reduce(times),
            np.full(len(at), len(times)),
            total,
            cells["scheduled_us"][at],
            base_ms,
            offsets=offsets_at(cells, at, self.state.offset_sources),
        )

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """The aggregates."""
        cells = self.state.instants[group]
        result = {}
        for each, (combination, sources) in zip(
            self.spec.aggregates, self._combinations, strict=True
        ):
            values: list[Column] = [cells[str(source)][at] for source in sources]
            times = [cells[f"appended_ms {source.kind}"][at] for source in sources]
            result[each.column] = combination.of(values, times)
        return result

    def named(self, group: int, code: int) -> dict[str, Any]:
        """Keys and event time."""
        keys = zip(self.spec.keys, self.state.keys.values(code), strict=True)
        return dict(keys) | {self._event_time: group}
