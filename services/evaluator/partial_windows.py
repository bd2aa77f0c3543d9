"""What stages 3 and 4 must publish when incomplete windows are published (`incomplete_windows =
"publish"`): every window with at least one flow and one speed, with what it has.

A complete window has the same content either way. A change in stage 4 against a part that has
nothing is null.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from schemas.workload import Windows
from services.evaluator.columns import Bools, Columns, Ints
from services.evaluator.inputs import Inputs
from services.evaluator.stages import Expected, Ingest, Join, Parse, Stage
from services.evaluator.windows import Change, Sliding, Tumbling, changes, counted

_NEVER = np.iinfo(np.int64).min
_Column = np.ndarray[Any, Any]


def rules(incomplete_windows: str, windows: Windows) -> dict[str, Stage]:
    """The rules of every stage, for a pipeline that withholds or publishes incomplete windows."""
    withholds = incomplete_windows == "withhold"
    tumbling = Tumbling() if withholds else PartialTumbling()
    sliding = Sliding(windows) if withholds else PartialSliding(windows)
    every: tuple[Stage, ...] = (Ingest(), Parse(), Join(), tumbling, sliding)
    return {rule.name: rule for rule in every}


def _has_both(cells: Columns, at: Ints) -> Bools:
    both: Bools = (cells["flows"][at] > 0) & (cells["speeds"][at] > 0)
    return both


class PartialTumbling(Tumbling):
    """Stage 3: windows with at least one flow and one speed."""

    grows = True

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        """As for complete windows, but implied wherever there is one of each."""
        whole = super().expected(inputs, group, at)
        return replace(whole, implied=_has_both(inputs.windows[group], at))


class PartialSliding(Sliding):
    """Stage 4: windows whose newest part has at least one flow and one speed."""

    grows = True

    def newest_ms(self, inputs: Inputs, group: int) -> int:
        newest = inputs.newest_ms["windows"]
        return max(newest.get(start, _NEVER) for start in self.parts(group))

    def size(self, inputs: Inputs, group: int) -> int:
        cells = inputs.windows.get(self.parts(group)[-1])
        return cells.size if cells else 0

    def expected(self, inputs: Inputs, group: int, at: Ints) -> Expected:
        parts = [inputs.windows.get(start) for start in self.parts(group)]

        def of(name: str, otherwise: float) -> list[_Column]:
            return [_values(cells, name, at, otherwise) for cells in parts]

        newest = parts[-1]
        assert newest is not None  # `at` is below `size`
        return Expected(
            _has_both(newest, at),
            np.maximum.reduce(of("latest_ms", _NEVER)),
            counted(of("flows", 0) + of("speeds", 0)),
            np.add.reduce(of("appended_sum", 0)),
            np.maximum.reduce(of("scheduled_us", _NEVER)),
            inputs.base_ms,
        )

    def _changes(self, inputs: Inputs, group: int, at: Ints) -> dict[str, Change]:
        parts = [inputs.windows.get(start) for start in self.parts(group)[-3:]]
        speeds = [np.maximum(_values(cells, "speeds", at, 1), 1) for cells in parts]

        def of(name: str) -> list[_Column]:
            return [_values(cells, name, at, np.nan) for cells in parts]

        speed = [total / n for total, n in zip(of("speed_sum"), speeds, strict=True)]
        size = [total / n for total, n in zip(of("speed_size"), speeds, strict=True)]
        return changes(of("flow_sum"), speed, size)


def _values(cells: Columns | None, name: str, at: Ints, otherwise: float) -> _Column:
    """A column of one part at site codes `at`; `otherwise` where it has not one of each."""
    if cells is None:
        return np.full(len(at), otherwise)
    known = np.flatnonzero(at < cells.size)
    known = known[_has_both(cells, at[known])]
    found = np.full(len(at), otherwise, np.result_type(cells[name].dtype, type(otherwise)))
    found[known] = cells[name][at[known]]
    return found
