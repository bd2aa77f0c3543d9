"""Expected outputs of a closed window, as columns with one row per output."""

from dataclasses import dataclass, replace

import numpy as np

from services.evaluator.column_mapping import Column
from services.evaluator.columns import UNKNOWN, Bools, Ints
from services.evaluator.values import Values


@dataclass(frozen=True)
class Results:
    """Outputs, one row each, with the times of the contributing inputs.

    columns: contents. members: by index of the input, the row that each output is made of, if it is
    one of each input. copies: how often each output occurs, if it may occur several times.
    """

    columns: dict[str, Values]
    texts: frozenset[str]
    latest_ms: Ints
    inputs: Ints
    appended_sum: Ints
    scheduled_us: Ints
    closed_ms: int = 0
    members: dict[int, Ints] | None = None
    copies: Ints | None = None
    identity: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.latest_ms)

    def take(self, rows: Ints | Bools) -> "Results":
        """The given rows."""
        members = None
        if self.members is not None:
            members = {kind: place[rows] for kind, place in self.members.items()}
        return replace(
            self,
            columns={name: taken(values, rows) for name, values in self.columns.items()},
            latest_ms=self.latest_ms[rows],
            inputs=self.inputs[rows],
            appended_sum=self.appended_sum[rows],
            scheduled_us=self.scheduled_us[rows],
            members=members,
            copies=None if self.copies is None else self.copies[rows],
        )

    def places(self, identity: list[Column]) -> Ints:
        """Row of each identity; UNKNOWN if there is none."""
        if not len(self):
            return np.full(len(identity[0]), UNKNOWN, np.int64)
        mine = [self.columns[name].values for name in self.identity]
        both = [np.concatenate([own, other]) for own, other in zip(mine, identity, strict=True)]
        number, _first = numbered(both)
        row_of = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
        row_of[number[: len(self)]] = np.arange(len(self))
        found: Ints = row_of[number[len(self) :]]
        return found


def taken(values: Values, rows: Ints | Bools) -> Values:
    scale = None if values.scale is None else values.scale[rows]
    return Values(values.values[rows], scale)


def numbered(columns: list[Column]) -> tuple[Ints, Ints]:
    """A number from 0 for every distinct row, and the index at which each number occurs first."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        number = number * max(len(values), 1) + code
        number = np.unique(number, return_inverse=True)[1]
    first: Ints = np.unique(number, return_index=True)[1]
    return number, first


def concatenated(parts: list[Results]) -> Results:
    """Outputs of several windows together."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else no_results()

    def of(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    members: dict[int, Ints] = {}
    for kind in parts[0].members or ():
        members[kind] = np.concatenate([(part.members or {})[kind] for part in parts])
    return replace(
        parts[0],
        columns={
            name: _joined([part.columns[name] for part in parts]) for name in parts[0].columns
        },
        latest_ms=of("latest_ms"),
        inputs=of("inputs"),
        appended_sum=of("appended_sum"),
        scheduled_us=of("scheduled_us"),
        members=members,
    )


def _joined(parts: list[Values]) -> Values:
    scales = [part.scale for part in parts if part.scale is not None]
    scale = np.concatenate(scales) if len(scales) == len(parts) else None
    return Values(np.concatenate([part.values for part in parts]), scale)


def no_results() -> Results:
    """An empty result."""
    empty = np.empty(0, np.int64)
    return Results({}, frozenset(), empty, empty, empty, empty, members={})


def cells_at(values: Values | None, place: Ints) -> Values:
    """Cells at some indices; NaN for UNKNOWN."""
    found, scale = np.full(len(place), np.nan), np.full(len(place), np.nan)
    known = place != UNKNOWN
    if values is not None and known.any():
        found[known] = values.values[place[known]]
        scale[known] = 0 if values.scale is None else values.scale[place[known]]
    return Values(found, scale)


def ints_at(column: Ints, place: Ints, otherwise: int) -> Ints:
    """Cells at some indices; `otherwise` for UNKNOWN."""
    found: Ints = np.full(len(place), otherwise, np.int64)
    known = place != UNKNOWN
    found[known] = column[place[known]]
    return found
