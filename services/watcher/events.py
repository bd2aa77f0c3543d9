"""Measurements of a watch before they get an id and a time."""

from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """Fields of a measurement of a run, by the run's number."""

    topic: str
    run: int
    fields: Fields
