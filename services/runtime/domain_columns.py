"""Checks the columns that `domain.toml` names against the schemas of the domain."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from schemas.domain import (
    HEADER,
    ROW_KINDS,
    RUN_ID,
    SEQUENCE,
    WINDOW_END,
    WINDOW_START,
    DomainSpec,
    StageSpec,
)

_TIME = "timestamp-millis"
Types = dict[str, dict[str, Any]]  # the Avro type of each column, by record


def check_columns(spec: DomainSpec) -> None:
    """Raise ValueError if an input or stage names a missing record or column, or a time in another
    unit than milliseconds."""
    types: Types = {
        name: {field["name"]: field["type"] for field in json.loads(text)["fields"]}
        for name, text in spec.schemas.items()
    }
    for one in spec.inputs:
        check(one.record in types, f"there is no schema {one.record}")
        needed = (one.impossible.column,) if one.impossible else ()
        for name in (*HEADER, one.key, one.event_time, *needed):
            check(name in types[one.record], f"{one.record} has no column {name!r}")
        _check_time(types, one.record, one.event_time)
        check(spec.topics.count(one.topic) == 1, f"two inputs have the topic {one.topic}")
    for stage in spec.stages:
        if stage.record:
            _check_outputs(spec, types, stage)
        _check_inputs(spec, types, stage)


def check(holds: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not holds:
        raise ValueError(otherwise)


def _check_outputs(spec: DomainSpec, types: Types, stage: StageSpec) -> None:
    """Check the record of a stage."""
    check(stage.record in types, f"there is no schema {stage.record}")
    made = {one.column for one in stage.aggregates} | {one.column for one in stage.changes}
    made |= stage.columns.keys()
    for name in (*sorted(made), *stage.keys, stage.key, *_address(spec, stage)):
        check(name in types[stage.record], f"{stage.record} has no column {name!r}")
    times = {one.event_time for one in spec.inputs_of(stage.name)} - made
    if any(one.is_windowed for one in spec.chain(stage.name)):
        times |= {WINDOW_START, WINDOW_END}
    for name in sorted(times & types[stage.record].keys()):
        _check_time(types, stage.record, name)


def _address(spec: DomainSpec, stage: StageSpec) -> tuple[str, ...]:
    """The columns that identify an output."""
    chain = spec.chain(stage.name)
    last = next((one for one in reversed(chain) if one.kind not in ROW_KINDS), None)
    if last is None:
        return RUN_ID, SEQUENCE
    if last.kind == "join":
        return RUN_ID, *last.keys, spec.inputs_of(last.name)[0].event_time
    if last is not stage and any(one.complete for one in chain):
        return RUN_ID, *last.keys, WINDOW_START
    pair = [name for name, source in last.columns.items() if source.endswith(f".{SEQUENCE}")]
    return RUN_ID, *(pair or last.keys), WINDOW_START, WINDOW_END


@dataclass(frozen=True)
class _Known:
    """The columns that a stage can read. sources: as `of` and `columns` name them; every: those of
    all its records; some: those of some of them."""

    sources: Collection[str]
    every: Collection[str]
    some: Collection[str]


def _known(spec: DomainSpec, types: Types, stage: StageSpec) -> _Known:
    before = spec.chain(stage.name)[:-1]
    if any(one.kind not in ROW_KINDS for one in before):
        found = {name for one in spec.records_of(before[-1].name) for name in types[one]}
        return _Known(found, found, found)
    added = {name for one in before if one.table for name in one.table.columns}
    reads = {name for one in (*before, stage) for name in one.reads}
    inputs = {i.name: {*types[i.record], *added} for i in spec.inputs if i.name in reads}
    used = [inputs[one.name] for one in spec.inputs_of(stage.name)]
    sources = [f"{name}.{column}" for name, columns in inputs.items() for column in columns]
    return _Known(sources, set.intersection(*used), set.union(*used))


def _check_inputs(spec: DomainSpec, types: Types, stage: StageSpec) -> None:
    """Check the columns that a stage reads."""
    known = _known(spec, types, stage)

    def check_all(setting: str, names: Iterable[str], there: Collection[str]) -> None:
        for name in names:
            listed = ", ".join(sorted(there))
            reason = f"{setting} of the stage {stage.name}: there is no column {name!r}"
            check(name in there, f"{reason}; there are: {listed}")

    check_all("keys", stage.keys, known.every)
    check_all("where", (one.column for one in stage.where), known.some)
    check_all("aggregates", (of for one in stage.aggregates for of in one.of), known.sources)
    check_all("columns", stage.columns.values(), known.sources)
    check_all("once_per", stage.once_per, known.every)
    if stage.table:
        check_all("table", [stage.table.key], known.some)
    if stage.kind == "change":
        aggregates = [one.column for one in spec.stage(stage.reads[0]).aggregates]
        check_all("changes", (one.of for one in stage.changes), aggregates)
    elif stage.complete:
        check_all("complete", [stage.complete.column], known.every)


def _check_time(types: Types, record: str, column: str) -> None:
    kind = types[record][column]
    kinds = kind if isinstance(kind, list) else [kind]
    is_time = any(isinstance(one, dict) and one.get("logicalType") == _TIME for one in kinds)
    check(is_time, f"the column {column!r} of {record} must be of the logical type {_TIME}")
