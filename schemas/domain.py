"""A domain: the records of its input topics, and what each stage must publish.

Stages are data. An engine implements kinds of stages and the evaluator has one oracle per kind, so
both are independent of domains. `domains/NAME/domain.toml` is one of these models; the plan of a
run contains it with its schemas and with the windows of the workload (`resolved`).

Kinds, by the inputs of an output:

copy        one input record: the same bytes.
decode      one input record: its columns, those of other inputs null.
filter      one record of the stage or inputs that it reads, if all of `where` hold.
lookup      one record: its columns and those of its row in `table`; dropped without a row.
join        one record of each input with the same keys and event time.
window_join each pair of records of two inputs with the same keys in one window.
aggregate   all records with the same keys in one window, at least one of each input it names; if it
            has no keys and no `complete`, all records of the run in one window.
change      windows of an aggregate: relative changes of the newest from earlier ones.

A window with `complete` is due when all its records have arrived: the records say how many there
are. Without `complete` it is due when event time has passed its end.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from schemas.codec import RecordSchemas, records_of
from schemas.model import Model, Stage

MAX_WINDOW_PARTS = 60
MAX_TABLE_ROWS = 10_000

Kind = Literal["copy", "decode", "filter", "lookup", "join", "window_join", "aggregate", "change"]
ROW_KINDS: tuple[Kind, ...] = ("copy", "decode", "filter", "lookup")
Function = Literal["first", "sum", "mean", "min", "max", "count", "count_distinct"]
Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
# INPUT.COLUMN, or a column of the stage that is read.
Source = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$")
]
Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$")]
# Columns of every input record in addition to the domain's own.
RUN_ID, SEQUENCE, SCHEDULED_AT = "run_id", "sequence", "scheduled_at"
HEADER = (RUN_ID, SEQUENCE, SCHEDULED_AT)
WINDOW_START, WINDOW_END = "window_start", "window_end"


class Impossible(Model):
    """A value that decodes but is impossible for its column (schemas/content.py)."""

    column: Column
    value: float


class InputSpec(Model):
    """An input topic. record: name of its Avro schema; key: the column whose text is the Kafka
    record key; event_time: a column of timestamp-millis. impossible: how `faults.impossible`
    changes a record."""

    name: Stage
    topic: Topic
    record: Column
    key: Column
    event_time: Column
    impossible: Impossible | None = None


class Condition(Model):
    """A comparison of a column with a constant."""

    column: Column
    operator: Literal["<", "<=", ">", ">=", "==", "!="]
    value: float | str


class Table(Model):
    """Static data: the values of `columns`, in their order, by the text of the column `key`."""

    key: Column
    columns: tuple[Column, ...] = Field(min_length=1, max_length=20)
    rows: dict[str, tuple[float | str, ...]] = Field(min_length=1, max_length=MAX_TABLE_ROWS)

    @model_validator(mode="after")
    def _whole_rows(self) -> "Table":
        for name, row in self.rows.items():
            if len(row) != len(self.columns):
                raise ValueError(f"the row {name!r} has {len(row)} values, not {len(self.columns)}")
        return self


class Window(Model):
    """Seconds of event time. slide_s: equal to size_s for a tumbling window."""

    size_s: int = Field(ge=1, le=86_400)
    slide_s: int = Field(ge=1, le=86_400)

    @property
    def parts(self) -> int:
        """Number of slides in a window."""
        return self.size_s // self.slide_s

    @model_validator(mode="after")
    def _whole_parts(self) -> "Window":
        if self.size_s % self.slide_s or self.parts > MAX_WINDOW_PARTS:
            raise ValueError(f"size_s must be 1 to {MAX_WINDOW_PARTS} times slide_s")
        return self


class Aggregate(Model):
    """An aggregate column of an output: a function of columns of its input records.

    of: `INPUT.COLUMN` of one or several inputs, or a column of the stage that is read. first: the
    value of the record appended first; over pairs, of the pair whose later record was.
    """

    column: Column
    function: Function
    of: tuple[Source, ...] = Field(min_length=1, max_length=8)


class Change(Model):
    """A column of an output: (new - old) / old of the column `of` of an aggregate, null where old
    is 0. back: how many windows before the newest the old one is."""

    column: Column
    of: Column
    back: int = Field(ge=1, le=MAX_WINDOW_PARTS)


class Complete(Model):
    """Number of records in a window: for each input, the largest value of the int column `column`
    in every `every_s` seconds of event time."""

    column: Column
    every_s: int = Field(1, ge=1, le=3_600)


class StageSpec(Model):
    """One stage.

    reads: inputs, or one earlier stage. record: Avro schema of its outputs; none for a copy, whose
    outputs are the inputs' records. key: the output column whose text is the Kafka record key; a
    copy keeps the input's key; that of an aggregate without keys is the run_id. keys: columns of
    grouping or joining.
    where: of a filter. table: of a lookup. aggregates: of a join or an aggregate; of a window_join
    over the two records of a pair. changes: of a change. window, complete: see above; a change has
    those of the aggregate that it reads, and its window slides by that one's size. columns: of a
    window_join, the `INPUT.COLUMN` of each output column; must include the `sequence` of both
    inputs, which identify the pair. once_per: an aggregate with `complete` counts one record per
    value of these columns, per input, key and `complete.every_s`; empty: every record.
    colour: of its lines in dashboards and reports, `#rrggbb`; empty: the next unused one.
    """

    name: Stage
    kind: Kind
    reads: tuple[Stage, ...] = Field(min_length=1, max_length=8)
    summary: str = ""
    record: Column | Literal[""] = ""
    key: Column | Literal[""] = ""
    keys: tuple[Column, ...] = Field((), max_length=8)
    where: tuple[Condition, ...] = Field((), max_length=8)
    table: Table | None = None
    window: Window | None = None
    aggregates: tuple[Aggregate, ...] = Field((), max_length=20)
    changes: tuple[Change, ...] = Field((), max_length=20)
    columns: dict[Column, Source] = Field(default_factory=dict, max_length=20)
    complete: Complete | None = None
    once_per: tuple[Column, ...] = Field((), max_length=4)
    colour: str = Field("", pattern="^(#[0-9a-f]{6})?$")

    @property
    def is_windowed(self) -> bool:
        """Whether its outputs belong to windows."""
        return self.kind in ("window_join", "aggregate", "change")

    @property
    def is_global(self) -> bool:
        """Whether it aggregates all records of a window together."""
        return self.kind == "aggregate" and self.complete is None and not self.keys

    @property
    def needs(self) -> str:
        """The capability required of an engine: the kind; for windows also when they are due."""
        if self.kind in ("aggregate", "change"):
            return f"{self.kind} {'counted' if self.complete else 'closed'}"
        return self.kind

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "StageSpec":
        needed: dict[str, object] = {
            "record": self.kind != "copy" and not self.record,
            "key": self.kind != "copy" and not self.key,
            "keys": self.kind in ("join", "window_join", "aggregate", "change")
            and not (self.keys or self.is_global),
            "where": self.kind == "filter" and not self.where,
            "table": self.kind == "lookup" and self.table is None,
            "window": self.is_windowed and self.window is None,
            "aggregates": self.kind in ("join", "aggregate") and not self.aggregates,
            "changes": self.kind == "change" and not self.changes,
            "columns": self.kind == "window_join" and not self.columns,
        }
        sequences = sum(source.endswith(f".{SEQUENCE}") for source in self.columns.values())
        needed["columns with the sequence of both inputs"] = (
            self.kind == "window_join" and sequences != 2
        )
        for name, lacks in needed.items():
            if lacks:
                raise ValueError(f"the stage {self.name} is a {self.kind} and needs {name}")
        if self.once_per and not self.complete:
            raise ValueError(
                f"the stage {self.name} has once_per, which applies only to windows with complete"
            )
        if self.is_global and self.key != RUN_ID:
            raise ValueError(f"the stage {self.name} has no keys, so its key must be {RUN_ID}")
        if self.key and self.keys and self.key not in self.keys:
            raise ValueError(f"the key of the stage {self.name} must be one of its keys")
        return self


class DomainSpec(Model):
    """A domain. schemas: by record name the newest `.avsc`, as JSON text without its docs."""

    name: Stage
    summary: str = ""
    inputs: tuple[InputSpec, ...] = Field(min_length=1, max_length=8)
    stages: tuple[StageSpec, ...] = Field(min_length=1, max_length=20)
    schemas: dict[str, str] = Field(default_factory=dict, max_length=40)

    @cached_property
    def closes_by_event_time(self) -> bool:
        """Whether it has windows and event time closes all of them."""
        windowed = [stage for stage in self.stages if stage.is_windowed]
        return bool(windowed) and all(stage.complete is None for stage in windowed)

    @cached_property
    def stage_names(self) -> tuple[Stage, ...]:
        """Names of the stages, in order."""
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Names of the input topics, in order."""
        return tuple(each.topic for each in self.inputs)

    def stage(self, name: str) -> StageSpec:
        """A stage by its name. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def input(self, name: str) -> InputSpec:
        """An input by its name or its topic. Raises KeyError."""
        for each in self.inputs:
            if name in (each.name, each.topic):
                return each
        raise KeyError(name)

    def inputs_of(self, stage: str) -> tuple[InputSpec, ...]:
        """The inputs of a stage, directly or through the stages that it reads; only those that its
        columns name, if any."""
        spec = self.stage(stage)
        result: set[str] = set()
        for name in spec.reads:
            is_input = any(each.name == name for each in self.inputs)
            result |= {name} if is_input else {each.name for each in self.inputs_of(name)}
        sources = [
            *spec.columns.values(),
            *(of for aggregate in spec.aggregates for of in aggregate.of),
        ]
        named = {source.split(".")[0] for source in sources if "." in source}
        return tuple(each for each in self.inputs if each.name in (result & named or result))

    def chain(self, stage: str) -> tuple[StageSpec, ...]:
        """The stages that a stage depends on, first to last, and itself at the end."""
        spec = self.stage(stage)
        before = [read for read in spec.reads if read in self.stage_names]
        return (*(step for each in before for step in self.chain(each)), spec)

    def closing_s(self, stages: Iterable[str], second_ms: int) -> int:
        """How many seconds of a load event time needs to pass the end of every window that it
        closes, for these stages; 0 without such windows. second_ms: of a second of event time."""
        closed_s = [
            each.window.size_s
            for stage in stages
            for each in self.chain(stage)
            if each.window is not None and each.is_windowed and each.complete is None
        ]
        return math.ceil(max(closed_s, default=0) * second_ms / 1000)

    def records_of(self, stage: str) -> tuple[str, ...]:
        """Names of the records on the output topic of a stage."""
        spec = self.stage(stage)
        return (spec.record,) if spec.record else tuple(i.record for i in self.inputs_of(stage))

    @model_validator(mode="after")
    def _is_whole(self) -> "DomainSpec":
        inputs = [each.name for each in self.inputs]
        known: set[str] = set(inputs)
        names = [*inputs, *(stage.name for stage in self.stages)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two inputs or stages are named {name!r}")
        for stage in self.stages:
            for name in stage.reads:
                if name not in known:
                    raise ValueError(
                        f"the stage {stage.name} reads {name!r}, which is neither an input nor "
                        "an earlier stage"
                    )
            if len(stage.reads) > 1 and not set(stage.reads) <= set(inputs):
                raise ValueError(f"the stage {stage.name} must read inputs, or one stage")
            known.add(stage.name)
        for stage in self.stages:
            self._check_change(stage)
        return self

    def _check_change(self, stage: StageSpec) -> None:
        if stage.kind != "change" or stage.window is None:
            return
        part = self.stage(stage.reads[0]) if stage.reads[0] in self.stage_names else None
        if part is None or part.kind != "aggregate" or part.window is None:
            raise ValueError(f"the stage {stage.name} is a change and must read an aggregate")
        if part.window.parts != 1 or stage.window.slide_s != part.window.size_s:
            raise ValueError(
                f"the stage {stage.name} must slide by the length of {part.name}, whose windows do "
                "not overlap"
            )
        if stage.window.parts <= max(change.back for change in stage.changes):
            raise ValueError(
                f"the window of {stage.name} must be longer: its changes look "
                f"back {max(change.back for change in stage.changes)} windows of {part.name}"
            )

    @cached_property
    def codec(self) -> RecordSchemas:
        """Encodes and decodes the domain's records."""
        return records_of(tuple(self.schemas.values()))

    def resolved(self, windows: dict[str, int]) -> "DomainSpec":
        """The domain with window sizes set by a workload, in seconds: `<stage>_s`, and
        `<stage>_slide_s` for a sliding one. Others are unchanged; a change slides by what it reads,
        and `<column>_s` sets how far one of its columns goes back. Raises ValueError."""
        left = dict(windows)
        fields = self.model_dump()
        sizes: dict[str, int] = {}
        for stage in fields["stages"]:
            window = stage["window"]
            if window is None:
                continue
            tumbles = window["size_s"] == window["slide_s"]
            window["size_s"] = left.pop(f"{stage['name']}_s", window["size_s"])
            if stage["kind"] == "change":
                window["slide_s"] = sizes.get(stage["reads"][0], window["slide_s"])
                _go_back(stage["changes"], left, window["slide_s"])
            else:
                fallback = window["size_s"] if tumbles else window["slide_s"]
                window["slide_s"] = left.pop(f"{stage['name']}_slide_s", fallback)
            sizes[stage["name"]] = window["size_s"]
        if left:
            raise ValueError(f"windows names {next(iter(left))!r}, which {self.name} does not have")
        return DomainSpec.model_validate(fields)

    def fixed(self) -> dict[str, Any]:
        """The fields as JSON, except those that a run sets: window sizes (`resolved`) and input
        topics, of which a run may have its own."""
        inputs: dict[str, Any] = {"__all__": {"topic"}}
        stages: dict[str, Any] = {"__all__": {"window": True, "changes": {"__all__": {"back"}}}}
        return self.model_dump(mode="json", exclude={"inputs": inputs, "stages": stages})


def _go_back(changes: Sequence[dict[str, Any]], given: dict[str, int], slide_s: int) -> None:
    """Apply `<column>_s` values, in seconds, to the columns of a change; removes them from
    `given`."""
    for change in changes:
        back_s = given.pop(f"{change['column']}_s", change["back"] * slide_s)
        if back_s % slide_s:
            raise ValueError(f"{change['column']}_s must be a multiple of {slide_s}")
        change["back"] = back_s // slide_s
