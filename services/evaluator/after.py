"""The oracle of filters, lookups and decodes that read a join, or an aggregate or change with
`complete`. It keeps the outputs that pass the filters and adds the columns of the tables."""

import numpy as np

from schemas.domain import StageSpec
from services.evaluator.column_mapping import Column, RowSteps
from services.evaluator.columns import UNKNOWN, Bools, Ints
from services.evaluator.counted_windows import Aggregated, Changed
from services.evaluator.decode import Decoded
from services.evaluator.joins import Join
from services.evaluator.output_columns import Context, OutputColumns
from services.evaluator.outputs import Outputs
from services.evaluator.stages import Expected, Oracle
from services.evaluator.values import Values


class After(Oracle):
    """The oracle of a stage that reads `core`, directly or through other filters. steps: those
    filters and tables, in order; the last is this stage's."""

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        core: Join | Aggregated | Changed,
        steps: RowSteps,
    ) -> None:
        self.spec = spec
        self.state = core.state
        self.grows = core.grows
        self.parts = core.parts  # type: ignore[method-assign]
        self.dependent_groups = core.dependent_groups  # type: ignore[method-assign]
        self.newest_ms = core.newest_ms  # type: ignore[method-assign]
        self.located = core.located  # type: ignore[method-assign]
        self.codes = core.codes  # type: ignore[method-assign]
        self.address = core.address  # type: ignore[method-assign]
        self.address_of = core.address_of  # type: ignore[method-assign]
        self.columns = OutputColumns(context, spec)
        self._names = context.names
        self._core = core
        self._steps = steps
        made = {*core.compared, *steps.added()}
        self._compared = [name for name in self.columns.names() if name in made]

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        group, index = self._core.addresses(decoded)
        return Outputs(group, index, appended_ms, self.columns.content(decoded, self._compared))

    def size(self, group: int) -> int:
        """Size of the group in the stage that is read."""
        return self._core.size(group)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs: those that pass the filters."""
        found = self._core.expected(group, at)
        found.implied[found.implied] = self._applied(group, at[found.implied])[0]
        return found

    def content(self, group: int, at: Ints) -> dict[str, Values]:
        """Columns of the stage that is read, and of the tables."""
        _keep, columns, core = self._applied(group, at)
        return {name: core.get(name, Values(columns[name])) for name in self._compared}

    def _applied(self, group: int, at: Ints) -> tuple[Bools, dict[str, Column], dict[str, Values]]:
        """Which outputs are kept, their columns, and the columns of the stage that is read."""
        core = self._core.content(group, at)
        numbers = {n: v.values for n, v in core.items() if not self._core.columns.is_text(n)}
        codes = {n: v.values for n, v in core.items() if n not in numbers}
        keys = self._core.state.keys.columns(self._core.codes(group, at))
        for name, code in zip(self._core.spec.keys, keys, strict=True):
            codes[name] = code
            if not self._core.columns.is_text(name):
                values = map(self._names[name].value, code.tolist())
                numbers[name] = np.array([*values, UNKNOWN])[:-1]
        keep, codes, numbers = self._steps.apply(codes, numbers, len(at))
        return keep, codes | numbers, core
