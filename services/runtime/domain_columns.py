"""Checks the columns that `domain.toml` names against the schemas of the domain."""

import json
from typing import Any

from schemas.domain import HEADER, WINDOW_END, WINDOW_START, DomainSpec, StageSpec

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
    for stage in spec.stages:
        if stage.record:
            _check_outputs(spec, types, stage)


def check(holds: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not holds:
        raise ValueError(otherwise)


def _check_outputs(spec: DomainSpec, types: Types, stage: StageSpec) -> None:
    """Check the record of a stage."""
    check(stage.record in types, f"there is no schema {stage.record}")
    made = {each.column for each in (*stage.aggregates, *stage.changes)} | stage.columns.keys()
    for name in (*sorted(made), *stage.keys, stage.key):
        check(name in types[stage.record], f"{stage.record} has no column {name!r}")
    times = {one.event_time for one in spec.inputs_of(stage.name)} - made
    if any(one.is_windowed for one in spec.chain(stage.name)):
        times |= {WINDOW_START, WINDOW_END}
    for name in sorted(times & types[stage.record].keys()):
        _check_time(types, stage.record, name)


def _check_time(types: Types, record: str, column: str) -> None:
    kind = types[record][column]
    kinds = kind if isinstance(kind, list) else [kind]
    is_time = any(isinstance(one, dict) and one.get("logicalType") == _TIME for one in kinds)
    check(is_time, f"the column {column!r} of {record} must be of the logical type {_TIME}")
