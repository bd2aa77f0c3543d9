"""The oracle of a join: one output per set of records, one of each input, with the same keys and
event time.

Outputs are addressed by event time and keys. Of several records of one input with the same keys and
event time, the first in topic order counts.
"""

from typing import Any

import numpy as np

from schemas.domain import StageSpec
from services.evaluator.column_mapping import Column, InputRows, RowSteps
from services.evaluator.columns import Bools, Group, Groups, Ints, first_of_each
from services.evaluator.decode import Decoded
from services.evaluator.output_columns import Context, OutputColumns
from services.evaluator.outputs import Outputs
from services.evaluator.stages import GROUP_CELLS, NEVER, Expected, KeyedOracle, kinds_of
from services.evaluator.value_codes import KeyCodes
from services.evaluator.values import Combination, Source, Values
from services.runtime.cells import by_value


class JoinState:
    """By event time and keys: the append time of the first record of each input, and the columns
    that the output needs from it. Bounded by `evict`.

    kinds: indices of the inputs. sources: input columns that outputs are made of, with dtype.
    """

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        sources: dict[Source, Any],
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
        self.instants = Groups(cells)
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


class Join(KeyedOracle):
    """The oracle of a join."""

    state: JoinState

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        state: JoinState,
        combinations: list[tuple[Combination, list[Source]]],
    ) -> None:
        self.spec = spec
        self.state = state
        self._combinations = combinations
        self._base_ms = context.base_ms
        self.columns = OutputColumns(context, spec)
        self._event_time = context.domain.inputs_of(spec.name)[0].event_time

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        content = self.columns.content(decoded, self.compared)
        return Outputs(*self.addresses(decoded), appended_ms, content)

    @property
    def compared(self) -> list[str]:
        """Columns that outputs are compared by."""
        return [one.column for one in self.spec.aggregates]

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
        implied: Bools = np.logical_and.reduce([one != NEVER for one in times])
        total = np.where(implied, np.add.reduce([one - base_ms for one in times]), 0)
        return Expected(
            implied,
            np.maximum.reduce(times),
            np.full(len(at), len(times)),
            total,
            cells["scheduled_us"][at],
            base_ms,
        )

    def content(self, group: int, at: Ints) -> dict[str, Values]:
        """The aggregates."""
        cells = self.state.instants[group]
        found = {}
        for one, (combination, sources) in zip(
            self.spec.aggregates, self._combinations, strict=True
        ):
            values: list[Column] = [cells[str(source)][at] for source in sources]
            times = [cells[f"appended_ms {source.kind}"][at] for source in sources]
            found[one.column] = combination.of(values, times)
        return found

    def named(self, group: int, code: int) -> dict[str, Any]:
        """Keys and event time."""
        keys = zip(self.spec.keys, self.state.keys.values(code), strict=True)
        return dict(keys) | {self._event_time: group}
