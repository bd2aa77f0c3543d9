"""Creates the oracles of a run from its domain: one class per kind of stage, none for a particular
domain.

oracles = Oracles(domain, stages, base_ms)
rows = oracles.rows(kind, decoded, appended_ms, digest)
oracles.add(rows)
oracles.stage("tumbling", publishes=False).expected(...)

`After` is the oracle of filters, lookups and decodes that read a join, or an aggregate or change
with `complete`. It keeps the outputs that pass the filters and adds the columns of the tables.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from schemas.content import Faults
from schemas.domain import ROW_KINDS, RUN_ID, SEQUENCE, Aggregate, DomainSpec, StageSpec
from services.evaluator.columnar.column_mapping import (
    Column,
    Combination,
    Dictionaries,
    ExpectedColumn,
    InputColumn,
    InputMapping,
    InputRows,
    NeededColumns,
    NotJudgedError,
    RowSteps,
    column_types,
    dtype_of,
)
from services.evaluator.columnar.columns import LIMITS, UNKNOWN, Bools, Ints, StateLimits
from services.evaluator.columnar.decode import Decoded
from services.evaluator.columnar.outputs import Context, OutputColumns, Outputs
from services.evaluator.columnar.value_codes import KeyCodes
from services.evaluator.expected.closed_windows import ClosedState, ClosedWindows
from services.evaluator.expected.counted_windows import (
    Aggregated,
    AggregateState,
    Changed,
    WindowState,
)
from services.evaluator.expected.rows import JoinOracle, JoinState, SequenceState, SingleRows
from services.evaluator.expected.stages import Expected, Oracle, StageOracle, State
from services.evaluator.expected.window_recipe import Recipe

_OF_TEXT = ("first", "count_distinct")


class After(Oracle):
    """The oracle of a stage that reads `core`, directly or through other filters. steps: those
    filters and tables, in order; the last is this stage's."""

    def __init__(
        self,
        context: Context,
        spec: StageSpec,
        core: JoinOracle | Aggregated | Changed,
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
        computed = {*core.compared, *steps.added()}
        self._compared = [name for name in self.columns.names() if name in computed]

    def outputs(self, decoded: Decoded, appended_ms: Ints, digest: Ints) -> Outputs:  # noqa: ARG002
        """Addresses and compared columns of decoded output records."""
        group, index = self._core.addresses(decoded)
        return Outputs(group, index, appended_ms, self.columns.content(decoded, self._compared))

    def size(self, group: int) -> int:
        """Size of the group in the stage that is read."""
        return self._core.size(group)

    def expected(self, group: int, at: Ints) -> Expected:
        """Expected outputs: those that pass the filters."""
        result = self._core.expected(group, at)
        result.implied[result.implied] = self._applied(group, at[result.implied])[0]
        return result

    def content(self, group: int, at: Ints) -> dict[str, ExpectedColumn]:
        """Columns of the stage that is read, and of the tables."""
        _keep, columns, core = self._applied(group, at)
        return {name: core.get(name, ExpectedColumn(columns[name])) for name in self._compared}

    def _applied(
        self, group: int, at: Ints
    ) -> tuple[Bools, dict[str, Column], dict[str, ExpectedColumn]]:
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


def _not_judged(spec: StageSpec, core: StageSpec) -> NotJudgedError:
    return NotJudgedError(
        f"The evaluator cannot judge the stage {spec.name}: a {spec.kind} of a {core.kind}."
    )


class Oracles:
    """Oracles of the stages that are published in a run, and their state.

    base_ms: a time near the inputs' (epoch ms). deadline_ms: a window without further records
    closes after this time. duplicated: fault rules and seed of the load, if it sends records twice
    on purpose. sources: number of input partitions whose offsets are noted; 0 for none. Raises
    NotJudgedError.
    """

    def __init__(
        self,
        domain: DomainSpec,
        stages: Iterable[str],
        *,
        base_ms: int = 0,
        deadline_ms: int = 10_000,
        duplicated: tuple[Faults, int] | None = None,
        sources: int = 0,
        limits: StateLimits = LIMITS,
        run_id: str = "",
    ) -> None:
        self._context = Context(domain, Dictionaries(limits), base_ms, sources, run_id)
        self._domain = domain
        self._duplicated = duplicated
        self._deadline_ms = deadline_ms
        self._states: dict[str, State] = {}
        specs = [domain.stage(name) for name in dict.fromkeys(stages)]
        singles = [each for each in specs if self._core(each) is None]
        self.compares_bytes = any(each.kind == "copy" for each in specs)
        needed = NeededColumns(set(), set())
        for spec in specs:
            self._add_needed(needed, spec)
        self._mappings = [
            InputMapping(domain, kind, needed, self._context.names)
            for kind in range(len(domain.inputs))
        ]
        if singles:
            self._sequences = SequenceState(
                self._context, self._of_singles(singles), self.compares_bytes
            )
            self._states["single rows"] = self._sequences

    @property
    def states(self) -> list[State]:
        """States of all oracles."""
        return list(self._states.values())

    def rows(self, kind: int, decoded: Decoded, appended_ms: Ints, digest: Ints) -> InputRows:
        """Rows of an input. Raises TooMuchStateError."""
        return self._mappings[kind].rows(decoded, appended_ms, digest)

    def add(self, rows: InputRows) -> None:
        """Store input rows, except for counted windows (`append_order.py`)."""
        for state in self._states.values():
            if not isinstance(state, WindowState):
                state.add(rows)

    def stage(self, name: str, publishes: bool = False) -> StageOracle:
        """The oracle of a stage. publishes: whether partial windows are published."""
        spec = self._domain.stage(name)
        core = self._core(spec)
        if core is None:
            steps = self._steps(self._domain.chain(name))
            return SingleRows(self._context, spec, self._sequences, steps, self._duplicated)
        if core.kind == "window_join" or (core.kind == "aggregate" and core.complete is None):
            return self._closed(spec, core)
        if spec.kind in ROW_KINDS:
            return self._after(spec, publishes)
        if core.kind == "join" and spec is core:
            return self._join(spec)
        if core.kind == "aggregate" and core.complete is not None:
            state = self._windows(core)
            if spec is core:
                return Aggregated(self._context, spec, state, publishes)
            if spec.kind == "change" and spec.reads == (core.name,):
                return Changed(self._context, spec, state, publishes)
        raise _not_judged(spec, core)

    def close(self, frontier_ms: int) -> None:
        """Close the windows that event time closes, given that everything before the frontier was
        read."""
        for state in self._states.values():
            if isinstance(state, ClosedState):
                state.close(frontier_ms)

    def open_between(self, from_us: int, until_us: int) -> int:
        """Number of open windows with records scheduled in a period (epoch µs)."""
        closed = (state for state in self._states.values() if isinstance(state, ClosedState))
        return sum(state.open_between(from_us, until_us) for state in closed)

    def _core(self, spec: StageSpec) -> StageSpec | None:
        """The first stage of the chain up to this one whose outputs are not single input records;
        None if there is none."""
        chain = self._domain.chain(spec.name)
        return next((each for each in chain if each.kind not in ROW_KINDS), None)

    def _steps(self, chain: Iterable[StageSpec]) -> RowSteps:
        rows = takewhile(lambda each: each.kind in ROW_KINDS, chain)
        return RowSteps(rows, self._domain.codec, self._context.names)

    def _types(self, kind: int) -> dict[str, str]:
        return column_types(self._domain.codec.schema_json(self._domain.inputs[kind].record))

    def _source(self, of: str) -> InputColumn:
        name, _, column = of.partition(".")
        return InputColumn(self._domain.inputs.index(self._domain.input(name)), column)

    def _sources(self, aggregate: Aggregate) -> list[InputColumn]:
        """Input columns that an aggregate is computed from; those of `first` in append order of
        one millisecond."""
        result = [self._source(of) for of in aggregate.of]
        if aggregate.function == "first":
            result.sort(key=lambda source: source.kind)
        is_text = any(self._types(each.kind).get(each.column) == "string" for each in result)
        of_one_name = len({each.column for each in result}) == 1
        is_code = is_text or aggregate.function == "count_distinct"
        if (is_text and aggregate.function not in (*_OF_TEXT, "count")) or (
            is_code and not of_one_name
        ):
            raise NotJudgedError(
                f"The evaluator cannot judge the column {aggregate.column}: {aggregate.function}"
                " of text or of columns of several names."
            )
        return result

    def _dtype(self, sources: Iterable[InputColumn]) -> Any:
        """float64 if any source is float, else int64, which includes codes of text."""
        types = {self._types(source.kind).get(source.column, "double") for source in sources}
        is_float = any(dtype_of(each) == np.float64 for each in types)
        return np.float64 if is_float else np.int64

    def _join(self, spec: StageSpec) -> JoinOracle:
        sources = [self._sources(aggregate) for aggregate in spec.aggregates]
        state = self._states.get(spec.name)
        if state is None:
            kept = {source: self._dtype([source]) for every in sources for source in every}
            steps = self._steps(self._domain.chain(spec.name))
            state = JoinState(self._context, spec, kept, steps)
            self._states[spec.name] = state
        assert isinstance(state, JoinState)
        combinations = [
            (Combination(each, self._dtype(of) == np.float64), of)
            for each, of in zip(spec.aggregates, sources, strict=True)
        ]
        return JoinOracle(self._context, spec, state, combinations)

    def _after(self, spec: StageSpec, publishes: bool) -> After:
        chain = self._domain.chain(spec.name)
        read = next(each for each in reversed(chain) if each.kind not in ROW_KINDS)
        core = self.stage(read.name, publishes)
        if spec.kind == "copy" or not isinstance(core, JoinOracle | Aggregated | Changed):
            raise _not_judged(spec, read)
        after = chain[chain.index(read) + 1 :]
        return After(
            self._context, spec, core, RowSteps(after, self._domain.codec, self._context.names)
        )

    def _closed(self, spec: StageSpec, core: StageSpec) -> ClosedWindows:
        chain = self._domain.chain(spec.name)
        after = chain[chain.index(core) + 1 :]
        last = next((each for each in after if each.kind not in ROW_KINDS), core)
        between = after[: after.index(last)] if last is not core else ()
        rest = after[after.index(last) + 1 :] if last is not core else after
        known = {("window_join", "aggregate"), ("aggregate", "change")}
        is_known = last is core or (core.kind, last.kind) in known
        if not is_known or last.complete or any(each.kind not in ROW_KINDS for each in rest):
            raise _not_judged(spec, core)
        recipe = Recipe(
            core,
            self._steps(between),
            last,
            self._steps(rest),
            {aggregate.column: self._sources(aggregate) for aggregate in core.aggregates},
            {name: self._source(of) for name, of in core.columns.items()},
            self._context.base_ms,
            self._context.sources,
        )
        state = self._states.get(spec.name)
        if state is None:
            state = ClosedState(self._context, recipe, self._steps(chain), self._deadline_ms)
            self._states[spec.name] = state
        assert isinstance(state, ClosedState)
        return ClosedWindows(self._context, spec, state, recipe)

    def _windows(self, spec: StageSpec) -> WindowState:
        state = self._states.get(spec.name)
        if state is None:
            steps = self._steps(self._domain.chain(spec.name))
            sums = [self._sum(spec, aggregate) for aggregate in spec.aggregates]
            state = WindowState(self._context, spec, sums, steps)
            self._states[spec.name] = state
        assert isinstance(state, WindowState)
        return state

    def _sum(self, spec: StageSpec, aggregate: Aggregate) -> AggregateState:
        assert spec.window is not None
        assert spec.complete is not None
        sources = {source.kind: source.column for source in self._sources(aggregate)}
        columns = set(sources.values())
        is_once = columns == set(spec.once_per) and len(sources) == 1
        distinct = None
        if aggregate.function == "count_distinct" and not (
            is_once and spec.window.size_s == spec.complete.every_s
        ):
            names = [self._context.names[key] for key in (*spec.keys, *columns)]
            distinct = KeyCodes(names)
        return AggregateState(
            aggregate, sources, self._dtype(self._sources(aggregate)) == np.float64, distinct
        )

    def _of_singles(self, specs: Iterable[StageSpec]) -> NeededColumns:
        """Input columns needed to judge copies, decodes, filters and lookups."""
        needed = NeededColumns(set(), set())
        for spec in specs:
            if spec.kind == "copy":
                needed.codes |= {each.key for each in self._domain.inputs_of(spec.name)}
            else:
                types = column_types(self._domain.codec.schema_json(spec.record))
                needed.values |= types.keys() - {RUN_ID, SEQUENCE}
            steps = self._steps(self._domain.chain(spec.name)).needs()
            needed.values |= steps.values
            needed.codes |= steps.codes
        return needed

    def _add_needed(self, needed: NeededColumns, spec: StageSpec) -> None:
        if self._core(spec) is None:
            mine = self._of_singles([spec])
            needed.values |= mine.values
            needed.codes |= mine.codes
            return
        for item in self._domain.chain(spec.name):
            steps = self._steps([item]).needs()
            needed.values |= steps.values
            needed.codes |= steps.codes
            is_coded = item.kind == "join" or item.complete is not None
            (needed.codes if is_coded else needed.values).update((*item.keys, *item.once_per))
            for each in item.aggregates:
                columns = {of.rpartition(".")[2] for of in each.of}
                needed.values |= columns
                needed.codes |= columns if each.function == "count_distinct" else set()
            needed.values |= {of.rpartition(".")[2] for of in item.columns.values()}
            if item.complete is not None:
                needed.values.add(item.complete.column)
