"""What all oracles share: an oracle computes from the inputs what a stage must publish.

Outputs are addressed by (group, index): block and place of the sequence where an output is one
input record, event time and keys for a join, window and identity for stages over windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from schemas.domain import RUN_ID, DomainSpec, StageSpec
from services.evaluator.column_mapping import (
    Column,
    Dictionaries,
    InputRows,
    column_types,
    dtype_of,
)
from services.evaluator.columns import Bools, Floats, Ints
from services.evaluator.decode import Decoded
from services.evaluator.outputs import Content, Outputs
from services.evaluator.values import Values

GROUP_CELLS = 32  # what a group takes beside its cells, in cells
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Expected:
    """What the inputs imply at some indices of a group.

    implied: whether an output is due at all; the rest holds only where it is. latest_ms: the latest
    LogAppendTime of the contributing inputs; inputs: how many they are; appended_sum: the sum of
    their LogAppendTimes, each less base_ms; scheduled_us: the latest of their scheduled times.
    closed_ms: when event time closed the window, where that is what makes it due.
    """

    implied: Bools
    latest_ms: Ints
    inputs: Ints
    appended_sum: Ints
    scheduled_us: Ints
    base_ms: int
    closed_ms: Ints | None = None

    @property
    def due_ms(self) -> Ints:
        """From when on the deadlines count."""
        if self.closed_ms is None:
            return self.latest_ms
        due: Ints = np.maximum(self.latest_ms, self.closed_ms)
        return due

    def mean_latency_ms(self, appended_ms: Ints) -> Ints:
        """LogAppendTimes of outputs less the mean of their inputs', in whole milliseconds. Halves
        round up. Exact: no mean is made."""
        total = self.inputs * (appended_ms - self.base_ms) - self.appended_sum
        rounded: Ints = (2 * total + self.inputs) // (2 * self.inputs)
        return rounded

    def mean_input_ms(self) -> Floats:
        """The mean of the inputs' LogAppendTimes, rounded up to 1/1024 ms, which a float holds
        until the year 2248. Halves are among these steps, so the latency that is computed from it
        and rounded is `mean_latency_ms`."""
        whole, rest = np.divmod(self.appended_sum, self.inputs)
        mean: Floats = (self.base_ms + whole) - (-1024 * rest // self.inputs) / 1024
        return mean

    def take(self, rows: Bools) -> "Expected":
        """The given rows."""
        return Expected(
            self.implied[rows],
            self.latest_ms[rows],
            self.inputs[rows],
            self.appended_sum[rows],
            self.scheduled_us[rows],
            self.base_ms,
            None if self.closed_ms is None else self.closed_ms[rows],
        )


class State(Protocol):
    """What an oracle remembers of the inputs, in groups. Bounded by `evict`.

    newest_ms: by group, the LogAppendTime of its newest input.
    """

    newest_ms: dict[int, int]

    def take_touched(self) -> set[int]:
        """Groups in which something was added since the last call."""

    def add(self, rows: InputRows) -> None:
        """Remember rows of an input, in topic order."""

    def evict(self, before: int) -> None:
        """Forget the groups below `before`, for good: further inputs of theirs are passed over."""

    def cells(self) -> int:
        """Cells in memory. Groups count as GROUP_CELLS more, so that many small ones are bounded
        as well."""


class Stage(Protocol):
    """The oracle of one stage.

    spec: the stage. state: what is remembered; oracles of several pipelines share it. grows:
    whether more inputs imply another output, instead of one where there was none.
    """

    spec: StageSpec
    grows: bool

    @property
    def state(self) -> State:
        """What is remembered of the inputs."""

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:
        """Addresses and compared columns of decoded output records."""

    def located(self, rows: Outputs) -> Outputs:
        """The same rows with the indices that their group gives them; all are of one group."""

    def is_open(self, group: int) -> bool:
        """Whether a window has inputs and is not closed, so that its outputs have to wait."""

    def parts(self, group: int) -> list[int]:
        """Groups of inputs that the outputs of a group are made of, oldest first."""

    def dependent_groups(self, group: int) -> list[int]:
        """Groups of outputs that the inputs of a group are a part of, oldest first."""

    def newest_ms(self, group: int) -> int:
        """The latest time at which an output of a group is due."""

    def size(self, group: int) -> int:
        """Indices of a group are below this."""

    def expected(self, group: int, at: Ints) -> Expected:
        """What the inputs imply at indices `at`, all of them in [0, size)."""

    def same(self, rows: Outputs, tolerance: float) -> Bools:
        """Whether each row says what the inputs imply; all rows are of one group and implied."""

    def copies(self, group: int, index: Ints) -> Ints | None:
        """How many outputs are explained at each address; None where it is one everywhere."""

    def expected_values(self, group: int, index: int) -> dict[str, Any]:
        """Expected columns, for a sample shown to people."""

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """Columns of an output, for a sample shown to people."""

    def address(self, group: int, index: int) -> dict[str, Any]:
        """What an expected output is about, in names, for a sample shown to people."""

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """What an output is about, in names, for a sample shown to people."""

    def key_column(self, group: int, index: int) -> str:
        """The column of the address whose text is the key of the output's Kafka record."""


@dataclass(frozen=True)
class Context:
    """What all oracles of a run are made with. base_ms: a time near the inputs' (epoch ms), from
    which times are added up: since 1970, five million of them would not fit in 64 bits."""

    domain: DomainSpec
    names: Dictionaries
    base_ms: int = 0


class OutputColumns:
    """Columns of the output record of a stage: how they become numbers and codes, and how a cell is
    shown to people."""

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
        """All but run_id, as the record has them."""
        return [name for name in self._types if name != RUN_ID]

    def is_text(self, name: str) -> bool:
        """Whether a column's cells are codes."""
        return name in self._dictionaries

    def of(self, decoded: Decoded, name: str) -> Column:
        """One column. Text that only an output knows gets a code too: the input that explains it
        may come later."""
        if name in self._dictionaries:
            return self._dictionaries[name].codes(decoded.coded(name), or_unknown=True)
        if dtype_of(self._types[name]) == np.float64:
            return decoded.floats(name)
        return decoded.ints(name)

    def keys(self, decoded: Decoded, keys: Iterable[str]) -> list[Ints]:
        """Codes of columns by which the stage groups, also where they are no text."""
        return [self._names[key].codes(decoded.coded(key), or_unknown=True) for key in keys]

    def content(self, decoded: Decoded, names: Iterable[str]) -> Content:
        """Some columns by name."""
        return {name: self.of(decoded, name) for name in names}

    def code_of_null(self, name: str) -> int:
        """The code of null in a column of text."""
        return self._dictionaries[name].code(None)

    def shown(self, name: str, cell: Any) -> Any:
        """A cell as people read it."""
        if name in self._dictionaries:
            return self._dictionaries[name].value(int(cell))
        value = cell.item() if isinstance(cell, np.generic) else cell
        return None if value != value else value  # noqa: PLR0124  # not a number


class Oracle:
    """What most oracles have in common: groups that stand for themselves, and columns that are
    compared one by one (`content`)."""

    spec: StageSpec
    state: State
    columns: OutputColumns
    grows = False

    def content(self, group: int, at: Ints) -> dict[str, Values]:
        """What the columns of outputs must say."""
        raise NotImplementedError

    def address(self, group: int, index: int) -> dict[str, Any]:
        """What an expected output is about."""
        raise NotImplementedError

    def located(self, rows: Outputs) -> Outputs:
        """The same rows: they have their indices."""
        return rows

    def is_open(self, group: int) -> bool:  # noqa: ARG002
        """Never: nothing is closed."""
        return False

    def parts(self, group: int) -> list[int]:
        """The group itself."""
        return [group]

    def dependent_groups(self, group: int) -> list[int]:
        """The group itself."""
        return [group]

    def newest_ms(self, group: int) -> int:
        """LogAppendTime of the newest input of a group."""
        return self.state.newest_ms[group]

    def same(self, rows: Outputs, tolerance: float) -> Bools:
        """Whether each row says what the inputs imply."""
        equal = np.ones(len(rows), bool)
        for name, values in self.content(int(rows.group[0]), rows.index).items():
            equal &= values.same(rows.content[name], tolerance)
        return equal

    def copies(self, group: int, index: Ints) -> Ints | None:  # noqa: ARG002
        """One output each."""
        return None

    def expected_values(self, group: int, index: int) -> dict[str, Any]:
        """The compared columns of an expected output."""
        found = self.content(group, np.array([index]))
        return {n: self.columns.shown(n, values.values[0]) for n, values in found.items()}

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The compared columns of an output."""
        return {n: self.columns.shown(n, column[row]) for n, column in rows.content.items()}

    def key_column(self, group: int, index: int) -> str:  # noqa: ARG002
        """The stage's key."""
        return self.spec.key

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """What an output is about."""
        return self.address(int(rows.group[row]), int(rows.index[row]))


def kinds_of(domain: DomainSpec, spec: StageSpec) -> list[int]:
    """The inputs that a stage is made of, by place."""
    inputs = domain.inputs_of(spec.name)
    return [kind for kind, one in enumerate(domain.inputs) if one in inputs]


def origin(domain: DomainSpec, spec: StageSpec, column: str) -> str:
    """Name of the input column whose values a column of text of a stage has."""
    if column in spec.columns:
        return spec.columns[column].rpartition(".")[2]
    for one in spec.aggregates:
        if one.column == column:
            return one.of[0].rpartition(".")[2]
    is_added = spec.table is not None and column in spec.table.columns
    reads_rows = spec.kind in ("filter", "lookup", "decode") and not is_added
    if reads_rows and spec.reads[0] in domain.stage_names:
        return origin(domain, domain.stage(spec.reads[0]), column)
    return column
