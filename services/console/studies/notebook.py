"""The finished runs of a study: run ids by what they measure, in a file of the data folder.

The results themselves are in the store. An interrupted study resumes from this file.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.validation_errors import DefinitionError
from services.runtime.whole_files import write_whole


@dataclass(frozen=True)
class Note:
    """One finished run. failed: why it has no report; empty if it has one."""

    run_id: str
    valid: bool
    failed: str = ""


@dataclass
class Notebook:
    """Notes by the key of a planned run, oldest first, stored in a file."""

    path: Path
    notes: dict[str, list[Note]] = field(default_factory=dict)

    def of(self, key: str) -> list[Note]:
        """The finished runs of a planned run."""
        return self.notes.get(key, [])

    def is_open(self, key: str, tries: int) -> bool:
        """Whether a run is outstanding: none is valid, and another try is allowed."""
        done = self.of(key)
        return len(done) < tries and not any(note.valid for note in done)

    def chosen(self, key: str) -> Note | None:
        """The run that counts: the valid one, or else the last."""
        done = self.of(key)
        return next((note for note in done if note.valid), done[-1] if done else None)

    def add(self, key: str, note: Note) -> None:
        """Add a run and write the file atomically."""
        self.notes.setdefault(key, []).append(note)
        self.write()

    def forget(self, key: str) -> None:
        """Remove a run so that it is repeated."""
        self.notes.pop(key, None)

    def write(self) -> None:
        """Write the file."""
        text = json.dumps({key: [vars(note) for note in own] for key, own in self.notes.items()})
        write_whole(self.path, text)


def open_notebook(data: Path, study: str, scale: str) -> Notebook:
    """The notebook of a study at a scale; empty if there is none. Raises DefinitionError if the
    file is damaged."""
    path = data / "studies" / f"{study}-{scale}.json"
    if not path.exists():
        return Notebook(path)
    try:
        found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
        notes = {key: [Note(**each) for each in own] for key, own in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DefinitionError(
            f"{path} is not readable; remove it to restart the study: {error}."
        ) from error
    return Notebook(path, notes)
