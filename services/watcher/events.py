"""Figures of a watch before they get an id and a time."""

from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """Figures of a run, by the run's number."""

    topic: str
    run: int
    fields: Fields
