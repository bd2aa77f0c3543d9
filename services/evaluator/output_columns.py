"""Columns of the output record of a stage, and where their text comes from."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.domain import RUN_ID, DomainSpec, StageSpec
from services.evaluator.column_mapping import Column, Dictionaries, column_types, dtype_of
from services.evaluator.columns import Ints
from services.evaluator.decode import Decoded
from services.evaluator.outputs import Content

NULL = np.iinfo(np.int64).min  # in columns of integers; no expected value


@dataclass(frozen=True)
class Context:
    """Arguments shared by all oracles of a run. base_ms: a time near the inputs' (epoch ms),
    subtracted before times are summed. Without it, sums of five million times since 1970 would
    overflow 64 bits."""

    domain: DomainSpec
    names: Dictionaries
    base_ms: int = 0


class OutputColumns:
    """Columns of a stage's output record: converts them to numbers and codes, and cells back to
    values for samples."""

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
        """All columns except run_id, in the record's order."""
        return [name for name in self._types if name != RUN_ID]

    def is_text(self, name: str) -> bool:
        """Whether a column holds codes."""
        return name in self._dictionaries

    def of(self, decoded: Decoded, name: str) -> Column:
        """One column. Text that occurs in outputs only gets a code too, within bounds: the input
        that explains it may arrive later."""
        if name in self._dictionaries:
            return self._dictionaries[name].codes(decoded.coded(name), of_outputs=True)
        if dtype_of(self._types[name]) == np.float64:
            return decoded.floats(name)
        return decoded.ints(name, null=NULL)

    def keys(self, decoded: Decoded, keys: Iterable[str]) -> list[Ints]:
        """Codes of the columns the stage groups by, even if they are not text."""
        return [self._names[key].codes(decoded.coded(key), of_outputs=True) for key in keys]

    def content(self, decoded: Decoded, names: Iterable[str]) -> Content:
        """Some columns by name."""
        return {name: self.of(decoded, name) for name in names}

    def code_of_null(self, name: str) -> int:
        """The code of null in a text column."""
        return self._dictionaries[name].code(None)

    def shown(self, name: str, cell: Any) -> Any:
        """The value of a cell in JSON: NaN is null, infinity is text."""
        if name in self._dictionaries:
            return self._dictionaries[name].value(int(cell))
        value = cell.item() if isinstance(cell, np.generic) else cell
        kind = self._types.get(name, "")
        if isinstance(value, float):
            return _float_shown(kind, value)
        if value == NULL:
            return None
        return bool(value) if kind == "boolean" else value


def _float_shown(kind: str, value: float) -> Any:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if kind == "boolean":
        return bool(value)
    if kind in ("int", "long") and value.is_integer():
        return int(value)
    # The shortest text of the same float: 0.1, not 0.10000000149011612.
    return float(str(np.float32(value))) if kind == "float" else value


def origin(domain: DomainSpec, spec: StageSpec, column: str) -> str:
    """Name of the input column from which a stage's text column takes its values."""
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
