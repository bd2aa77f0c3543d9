"""Code shared by all oracles. An oracle computes from the inputs what a stage must publish.

Outputs are addressed by (group, index): block and offset of the sequence number for single input
records, event time and keys for a join, window and keys or identity for stages over windows.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from schemas.domain import DomainSpec, StageSpec
from services.evaluator.columnar.column_mapping import OFFSET, SOURCE, ExpectedColumn, InputRows
from services.evaluator.columnar.columns import UNKNOWN, Bools, Columns, Floats, Group, Ints
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.outputs import OutputColumns, Outputs

GROUP_CELLS = 32  # overhead of a group, in cells
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Expected:
    """Expected outputs at some indices of a group.

    implied: whether an output is expected; all other fields are valid only if it is. latest_ms: the
    latest LogAppendTime of the contributing inputs. inputs: their number. appended_sum: the sum of
    their LogAppendTimes, each minus base_ms. scheduled_us: the latest of their scheduled times.
    closed_ms: when event time closed the window, if the output is due because of that. window_us:
    the latest scheduled time of all records in the windows that were joined, if any were. offsets:
    by source and output, the highest offset of a contributing input, or UNKNOWN; None unless the
    run measures `processing_time`.
    """

    implied: Bools
    latest_ms: Ints
    inputs: Ints
    appended_sum: Ints
    scheduled_us: Ints
    base_ms: int
    closed_ms: Ints | None = None
    window_us: Ints | None = None
    offsets: Ints | None = None

    @property
    def is_closed(self) -> bool:
        """Whether they are of a window closed by event time, so that no input can be added."""
        return self.closed_ms is not None

    @property
    def due_ms(self) -> Ints:
        """The time from which deadlines count."""
        if self.closed_ms is None:
            return self.latest_ms
        due: Ints = np.maximum(self.latest_ms, self.closed_ms)
        return due

    def mean_latency_ms(self, appended_ms: Ints) -> Ints:
        """LogAppendTimes of outputs minus the mean of their inputs', in whole milliseconds, halves
        up. Exact: computed in integers."""
        total = self.inputs * (appended_ms - self.base_ms) - self.appended_sum
        rounded: Ints = (2 * total + self.inputs) // (2 * self.inputs)
        return rounded

    def mean_input_ms(self) -> Floats:
        """The mean of the inputs' LogAppendTimes, rounded up to 1/1024 ms, which a float can
        represent until the year 2248. Halves are multiples of that step, so rounding the latency
        computed from it gives `mean_latency_ms`."""
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
            None if self.window_us is None else self.window_us[rows],
            None if self.offsets is None else self.offsets[:, rows],
        )


def offset_cells(sources: int) -> dict[str, tuple[Any, Any]]:
    """Columns of cells for the highest offset of each source; none for no source."""
    return {offset_of(source): (np.int64, UNKNOWN) for source in range(sources)}


def offset_of(source: int) -> str:
    """The column of a source in `offset_cells`."""
    return f"{OFFSET} of {source}"


def add_offsets(cells: Columns, at: Ints, rows: InputRows, picked: Ints) -> None:
    """Note the offsets of the picked rows in the cells at these positions, if rows have some."""
    if SOURCE not in rows.numbers:
        return
    source, offset = rows.numbers[SOURCE][picked], rows.numbers[OFFSET][picked]
    for number in np.unique(source).tolist():
        mine = source == number
        np.maximum.at(cells[offset_of(number)], at[mine], offset[mine])


def offsets_at(cells: Columns, at: Ints, sources: int) -> Ints | None:
    """By source, the offsets in the cells at these positions; None for no source."""
    if not sources:
        return None
    return np.stack([cells[offset_of(source)][at] for source in range(sources)])


class State(Protocol):
    """What an oracle stores about the inputs, in groups. Bounded by `evict`.

    newest_ms: by group, the LogAppendTime of its newest input.
    """

    newest_ms: dict[int, int]

    def take_touched(self) -> set[int]:
        """Groups to which records were added since the last call."""

    def add(self, rows: InputRows) -> None:
        """Store rows of an input, in topic order."""

    def evict(self, before: int) -> None:
        """Remove the groups below `before`. Their further inputs are ignored."""

    def cells(self) -> int:
        """Cells in memory. Each group counts as GROUP_CELLS more, which bounds the number of small
        groups."""


class StageOracle(Protocol):
    """The oracle of one stage.

    spec: the stage. state: shared by oracles of several pipelines. grows: whether more inputs imply
    a different output, instead of one where there was none.
    """

    spec: StageSpec
    grows: bool

    @property
    def state(self) -> State:
        """The stored inputs."""

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:
        """Addresses and compared columns of decoded output records."""

    def located(self, rows: Outputs) -> Outputs:
        """The same rows with their indices in the group; all rows are of one group."""

    def codes(self, group: int, at: Ints) -> Ints:
        """The indices that outputs at these indices of a group had before they were located."""

    def is_open(self, group: int) -> bool:
        """Whether a window has inputs and is not closed, so that its outputs must wait."""

    def may_open(self, group: int, frontier_ms: int) -> bool:
        """Whether a window without inputs may still get some that count; everything appended before
        the frontier is known."""

    def parts(self, group: int) -> list[int]:
        """Groups of inputs that contribute to the outputs of a group, oldest first."""

    def dependent_groups(self, group: int) -> list[int]:
        """Groups of outputs that the inputs of a group contribute to, oldest first."""

    def newest_ms(self, group: int) -> int:
        """The latest time at which an output of a group is due."""

    def size(self, group: int) -> int:
        """Upper bound of the indices of a group."""

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs at indices `at`, all in [0, size)."""

    def same(self, rows: Outputs, tolerance: float) -> Bools:
        """Whether each row has the expected content; all rows are of one group and implied."""

    def copies(self, group: int, index: Ints) -> Ints | None:
        """Number of outputs explained at each address; None if it is one for all."""

    def expected_values(self, group: int, index: int) -> dict[str, Any]:
        """Expected columns, for a sample."""

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """Columns of an output, for a sample."""

    def address(self, group: int, index: int) -> dict[str, Any]:
        """Address of an expected output as named values, for a sample."""

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """Address of an output that is not located, as named values, for a sample."""

    def key_column(self, group: int, index: int) -> str:
        """The column of the address whose text is the key of the output's Kafka record."""


class Oracle:
    """Defaults shared by most oracles: each group consists of itself alone, and columns are
    compared one by one (`content`)."""

    spec: StageSpec
    state: State
    columns: OutputColumns
    grows = False

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """The expected columns of outputs."""
        raise NotImplementedError

    def address(self, group: int, index: int) -> dict[str, Any]:
        """Address of an expected output."""
        raise NotImplementedError

    def located(self, rows: Outputs) -> Outputs:
        """The same rows: their indices are already set."""
        return rows

    def codes(self, group: int, at: Ints) -> Ints:  # noqa: ARG002
        """The same indices."""
        return at

    def is_open(self, group: int) -> bool:  # noqa: ARG002
        """Always False: these windows do not close."""
        return False

    def may_open(self, group: int, frontier_ms: int) -> bool:  # noqa: ARG002
        """Always False."""
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
        """Whether each row has the expected content."""
        equal = np.ones(len(rows), bool)
        for name, values in self.content(int(rows.group[0]), rows.index).items():
            equal &= values.same(rows.content[name], tolerance)
        return equal

    def copies(self, group: int, index: Ints) -> Ints | None:  # noqa: ARG002
        """None: one output per address."""
        return None

    def expected_values(self, group: int, index: int) -> dict[str, Any]:
        """The compared columns of an expected output."""
        result = self.content(group, np.array([index]))
        return {n: self.columns.shown(n, values.values[0]) for n, values in result.items()}

    def said(self, rows: Outputs, row: int) -> dict[str, Any]:
        """The compared columns of an output."""
        return {n: self.columns.shown(n, column[row]) for n, column in rows.content.items()}

    def key_column(self, group: int, index: int) -> str:  # noqa: ARG002
        """The stage's key."""
        return self.spec.key

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """Address of an output."""
        return self.address(int(rows.group[row]), int(rows.index[row]))


class KeyedOracle(Oracle):
    """An oracle whose outputs have the code of their keys as index, until they are located in a
    group of cells."""

    @property
    def compared(self) -> list[str]:
        """Columns that outputs are compared by."""
        raise NotImplementedError

    def addresses(self, decoded: Decoded) -> tuple[Ints, Ints]:
        """Groups and key codes of decoded output records."""
        raise NotImplementedError

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        content = self.columns.content(decoded, self.compared)
        return Outputs(*self.addresses(decoded), appended_ms, content)

    def cells_of(self, group: int) -> Group | None:
        """The cells at whose positions the outputs of a group are."""
        raise NotImplementedError

    def named(self, group: int, code: int) -> dict[str, Any]:
        """The keys with a code, and the group, as named values."""
        raise NotImplementedError

    def size(self, group: int) -> int:
        """Number of cells of a group."""
        cells = self.cells_of(group)
        return 0 if cells is None else cells.size

    def located(self, rows: Outputs) -> Outputs:
        """The rows with the positions of their keys."""
        cells = self.cells_of(int(rows.group[0]))
        return rows if cells is None else rows.at(cells.positions(rows.index))

    def codes(self, group: int, at: Ints) -> Ints:
        """Codes of the keys at these positions."""
        cells = self.cells_of(group)
        assert cells is not None
        return cells.codes(at)

    def address(self, group: int, index: int) -> dict[str, Any]:
        """Address of an expected output."""
        return self.named(group, int(self.codes(group, np.array([index]))[0]))

    def address_of(self, rows: Outputs, row: int) -> dict[str, Any]:
        """Address of an output that is not located."""
        return self.named(int(rows.group[row]), int(rows.index[row]))


def kinds_of(domain: DomainSpec, spec: StageSpec) -> list[int]:
    """Indices of the inputs that a stage is computed from."""
    inputs = domain.inputs_of(spec.name)
    return [kind for kind, each in enumerate(domain.inputs) if each in inputs]
