"""Records of a run that were read and not judged, by topic and reason. Pure."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from services.watcher.extracting import MAX_REASONS, OTHERS

Kind = Literal["refused", "other_type", "outside", "removed", "unpaired"]


@dataclass
class Row:
    """Records of one topic with one reason. partition, offset: of the first; -1 if unknown.

    kind: refused, if it cannot be evaluated, which is a complaint about the run; other_type, if its
    type is not the watched one; outside, if its timestamp is just before or after the watch;
    removed, if it was removed before it could be read; unpaired, for an output or input whose
    counterpart may have been removed.
    """

    topic: str
    kind: Kind
    reason: str
    records: int
    partition: int = -1
    offset: int = -1


class NotJudged:
    """The rows of a run; of one topic and kind at most MAX_REASONS, and one for the rest."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Kind, str], Row] = {}

    def add(self, row: Row) -> None:
        """Count the records of a row."""
        side = [one for one in self._rows if one[:2] == (row.topic, row.kind)]
        name = (row.topic, row.kind, row.reason)
        if name not in self._rows and len(side) >= MAX_REASONS:
            name = (row.topic, row.kind, OTHERS)
        if name in self._rows:
            self._rows[name].records += row.records
        else:
            self._rows[name] = replace(row, reason=name[2])

    def rows(self) -> list[dict[str, Any]]:
        """All rows as JSON types, by topic, kind and reason."""
        return [asdict(self._rows[name]) for name in sorted(self._rows)]
