"""Runs the stages of a domain, one input record at a time. Pure.

stages = Stages(plan.domain, tuple(plan.outputs), plan.wire_format)
stages.outputs(topic, key, value, appended_ms), stages.closed(now_ms)
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from schemas import codec, json_format
from schemas.domain import (
    SCHEDULED_AT,
    SEQUENCE,
    WINDOW_END,
    WINDOW_START,
    DomainSpec,
    InputSpec,
    StageSpec,
)
from schemas.model import Stage
from services.calibration_pipeline.kinds import Fields, Join, Kind, PerRow, Row
from services.calibration_pipeline.windows import Closed, Counted, WindowJoin

NUMBERS = {"int", "long", "float", "double"}


@dataclass(frozen=True)
class Made:
    """One output. due_ms: start of its delay; record, row: its content, if it can be corrupted;
    kept: the columns that identify the output."""

    stage: Stage
    number: int
    due_ms: int
    key: bytes | None
    value: bytes
    record: str = ""
    row: Fields | None = None
    kept: frozenset[str] = frozenset()


def kind_of(spec: StageSpec, domain: DomainSpec, deadline_ms: int) -> Kind:
    """A new stage. Raises ValueError for a kind that the calibration does not support."""
    if spec.kind in ("copy", "decode", "filter", "lookup"):
        return PerRow(spec)
    if spec.kind == "join":
        return Join(spec, domain)
    if spec.kind == "window_join":
        return WindowJoin(spec, domain)
    if spec.kind == "aggregate":
        return Counted(spec, domain) if spec.complete else Closed(spec, domain, deadline_ms)
    raise ValueError(f"the calibration has no {spec.kind}")


class Stages:
    """The published stages of a pipeline and the stages they depend on.

    wire_format: of the inputs, `avro` or `json`. deadline_ms: of the workload.
    """

    def __init__(
        self,
        domain: DomainSpec,
        published: tuple[Stage, ...],
        wire_format: str = "avro",
        deadline_ms: int = 10_000,
    ) -> None:
        self._domain, self._published, self._format = domain, set(published), wire_format
        needed = {step.name for stage in published for step in domain.chain(stage)}
        self._steps = [
            (
                spec,
                frozenset(one.name for one in domain.inputs_of(spec.name)),
                kind_of(spec, domain, deadline_ms),
            )
            for spec in domain.stages
            if spec.name in needed
        ]
        # Never corrupt identity columns: the output would match other inputs.
        self._identity = {
            spec.name: frozenset(identity(spec, domain)) for spec, _, _ in self._steps
        }

    def outputs(
        self, topic: str, key: bytes | None, value: bytes | None, appended_ms: int
    ) -> list[Made]:
        """The outputs due after one more input. Undecodable input is only copied."""
        source = self._domain.input(topic)
        try:
            fields = self._decoded(source, value)
        except codec.DecodeError:
            return [
                Made(spec.name, -1, appended_ms, key, value)
                for spec, inputs, _ in self._steps
                if spec.kind == "copy"
                and spec.name in self._published
                and source.name in inputs
                and value is not None
            ]
        assert value is not None
        event_ms, number = fields[source.event_time], fields[SEQUENCE]
        row = Row(fields, source.name, event_ms, appended_ms, appended_ms, number)
        made = self._advance({source.name: [row]}, (source, key, value))
        for _, _, kind in self._steps:
            if isinstance(kind, Closed | WindowJoin):
                kind.seen(row)
        return made

    @property
    def closes_windows(self) -> bool:
        """Whether any output can become due by time alone."""
        return any(isinstance(kind, Closed) for _, _, kind in self._steps)

    def closed(self, now_ms: float) -> list[Made]:
        """The outputs due by time alone. now_ms: epoch milliseconds."""
        return self._advance({}, None, now_ms)

    def _advance(
        self,
        rows: dict[str, list[Row]],
        copied: tuple[InputSpec, bytes | None, bytes] | None,
        now_ms: float | None = None,
    ) -> list[Made]:
        """Pass input rows through all stages, in order."""
        made: list[Made] = []
        for spec, _, kind in self._steps:
            out: list[Row] = []
            if now_ms is not None and isinstance(kind, Closed):
                out = kind.closed(now_ms)
            for name in spec.reads:
                for row in rows.get(name, ()):
                    out += kind.add(row)
            rows[spec.name] = out
            if spec.name in self._published:
                made += (self._made(spec, row, copied) for row in out)
        return made

    def _made(
        self, spec: StageSpec, row: Row, copied: tuple[InputSpec, bytes | None, bytes] | None
    ) -> Made:
        kept = self._identity[spec.name]
        if spec.kind == "copy":
            assert copied is not None
            source, key, value = copied
            return Made(
                spec.name, row.number, row.due_ms, key, value, source.record, row.fields, kept
            )
        columns = {name: row.fields.get(name) for name in _types(self._schema(spec.record))}
        value = self._domain.codec.encode(spec.record, columns)
        key = str(row.fields[spec.key]).encode()
        return Made(spec.name, row.number, row.due_ms, key, value, spec.record, columns, kept)

    def spoilt(self, made: Made) -> bytes:
        """The encoded output with one wrong value; unchanged if no column can be corrupted."""
        if made.row is None:
            return made.value
        wrong = made.row | spoilt_column(made.row, _types(self._schema(made.record)), made.kept)
        is_copy = self._domain.stage(made.stage).kind == "copy"
        if is_copy and self._format == "json":
            return json_format.encode_json(made.record, wrong, self._domain.codec)
        return self._domain.codec.encode(made.record, wrong)

    def _schema(self, record: str) -> str:
        return self._domain.codec.schema_json(record)

    def _decoded(self, source: InputSpec, value: bytes | None) -> Fields:
        records = self._domain.codec
        if self._format == "json":
            return json_format.decode_json(source.record, value, records)
        return records.decode_as(source.record, value)


def identity(spec: StageSpec, domain: DomainSpec) -> Iterable[str]:
    """The columns that identify an output."""
    yield from (SEQUENCE, SCHEDULED_AT, WINDOW_START, WINDOW_END, spec.key, *spec.keys)
    for one in domain.inputs_of(spec.name):
        yield from (one.event_time, one.key)
    for step in domain.chain(spec.name):
        yield from (name for name, of in step.columns.items() if of.endswith(f".{SEQUENCE}"))


def spoilt_column(row: Fields, types: dict[str, str], kept: frozenset[str]) -> Fields:
    """One non-identity column with a changed value: the last number, else the last text; empty if
    there is neither."""
    free = [name for name in types if name not in kept and row[name] is not None]
    numbers = [name for name in free if types[name] in NUMBERS]
    texts = [name for name in free if types[name] == "string" and name != "run_id"]
    if numbers:
        return {numbers[-1]: row[numbers[-1]] + 1}
    return {texts[-1]: row[texts[-1]] + "?"} if texts else {}


@cache
def _types(schema: str) -> dict[str, str]:
    """Avro type of each column, without null and logical types."""
    found: dict[str, Any] = {one["name"]: one["type"] for one in json.loads(schema)["fields"]}
    return {name: _plain(kind) for name, kind in found.items()}


def _plain(kind: Any) -> str:
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
