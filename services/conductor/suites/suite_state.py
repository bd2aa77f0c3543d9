"""State of a conductor over restarts: the current run, the suite and its place.

One small JSON file, replaced atomically, so that a kill leaves the old or the new one. A file that
is invalid nevertheless, such as after a disk failure, is set aside and logged: a suite then begins
anew, and an open run is found on the bus.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from schemas.suite import Suite
from schemas.validation_errors import first_mistake
from services.conductor.suites.schedule import Place
from services.runtime.whole_files import write_whole

MOST_SUITES = 100
MOST_BYTES = 16 * 1024 * 1024
_PLACE = TypeAdapter(Place)


class SuiteStateFile(BaseModel):
    """Content of the file. suite and places are parsed separately, as another version may have
    written them. run_stack_id, stack_id: of the stack that began the run, and that received the
    suite."""

    model_config = ConfigDict(strict=True, extra="allow")

    run_id: str = ""
    run_began_ms: int = 0
    run_stack_id: str = ""
    stack_id: str = ""
    suite: dict[str, Any] | None = None
    places: dict[str, Any] = Field(default_factory=dict)


class SuiteState:
    """The file `conductor.json` of a data folder.

    stack_id: identifies one start of the whole stack; a suite requested by command applies for as
    long as that runs. An invalid file counts as empty.
    """

    def __init__(self, data: Path, stack_id: str) -> None:
        self._path = data / "conductor.json"
        self._stack_id = stack_id
        self._noted = self._read()

    @property
    def run_id(self) -> str:
        """The current run at the last write, or empty."""
        return self._noted.run_id

    @property
    def run_began_ms(self) -> int:
        """When that run began, epoch milliseconds; 0 if unknown."""
        return self._noted.run_began_ms

    @property
    def run_is_of_this_stack(self) -> bool:
        """Whether that run began under this start of the stack."""
        return self._noted.run_stack_id == self._stack_id

    def begin_run(self, run_id: str, at_ms: int) -> None:
        """Save that a run begins now."""
        self._write(run_id=run_id, run_began_ms=at_ms, run_stack_id=self._stack_id)

    def end_run(self) -> None:
        """Save that no run is active."""
        self._write(run_id="")

    def suite(self) -> Suite | None:
        """The suite requested by command since the stack was started."""
        if self._noted.stack_id != self._stack_id or not self._noted.suite:
            return None
        try:
            return Suite.model_validate(self._noted.suite)
        except ValidationError:
            return None  # written by another version

    def keep_suite(self, suite: Suite) -> None:
        """Save a requested suite."""
        self._write(stack_id=self._stack_id, suite=suite.model_dump(mode="json"))

    def place(self, suite: str) -> Place:
        """The place in a suite; the start for one that never ran here."""
        try:
            place = json.dumps(self._noted.places.get(suite, {}))
            return _PLACE.validate_json(place, strict=True)
        except ValidationError:
            return Place()  # written by another version

    def keep_place(self, suite: str, place: Place) -> None:
        """Save the place in a suite. Of MOST_SUITES suites, the least recently used are evicted."""
        others = {k: v for k, v in self._noted.places.items() if k != suite}
        kept = list(others.items())[-(MOST_SUITES - 1) :]
        self._write(places={**dict(kept), suite: asdict(place)})

    def _read(self) -> SuiteStateFile:
        try:
            with self._path.open("rb") as file:
                return SuiteStateFile.model_validate_json(file.read(MOST_BYTES))
        except FileNotFoundError:
            return SuiteStateFile()
        except ValidationError as error:
            aside = self._path.with_suffix(".unreadable")
            self._path.replace(aside)
            reason = first_mistake(error, self._path.name)
            structlog.get_logger().warning("notes_set_aside", path=str(aside), reason=reason)
            return SuiteStateFile()

    def _write(self, **changes: Any) -> None:
        self._noted = self._noted.model_copy(update=changes)
        write_whole(self._path, self._noted.model_dump_json())
