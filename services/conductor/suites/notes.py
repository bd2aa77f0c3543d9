"""What a conductor must know after a restart: the run that goes on, the suite and its place.

One small JSON file, replaced in one step, so that a kill at any time leaves the old or the new one.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.suite import Suite
from services.conductor.suites.schedule import Place

MOST_SUITES = 100


class Notes:
    """The file `conductor.json` of a data folder.

    stack_id: names one start of the whole stack; a suite that was asked for by command is the
    conductor's own for as long as that lasts. A file that cannot be read counts as empty.
    """

    def __init__(self, data: Path, stack_id: str) -> None:
        self._path = data / "conductor.json"
        self._stack_id = stack_id
        self._fields = self._read()

    @property
    def run_id(self) -> str:
        """The run that was going on when this was written last, or empty."""
        return str(self._fields.get("run_id", ""))

    @property
    def run_began_ms(self) -> int:
        """When that run began, epoch milliseconds; 0 if it is not known."""
        found = self._fields.get("run_began_ms")
        return found if isinstance(found, int) else 0

    @property
    def run_is_of_this_stack(self) -> bool:
        """Whether the stack has not been started anew since that run began."""
        return bool(self._fields.get("run_stack_id") == self._stack_id)

    def begin_run(self, run_id: str, at_ms: int) -> None:
        """Note that a run goes on from now."""
        self._write(run_id=run_id, run_began_ms=at_ms, run_stack_id=self._stack_id)

    def end_run(self) -> None:
        """Note that none does."""
        self._write(run_id="")

    def suite(self) -> Suite | None:
        """The suite that was asked for by command since the stack was started."""
        if self._fields.get("stack_id") != self._stack_id or not self._fields.get("suite"):
            return None
        try:
            return Suite.model_validate(self._fields["suite"])
        except ValidationError:
            return None  # written by another version

    def keep_suite(self, suite: Suite) -> None:
        """Note that a suite was asked for."""
        self._write(stack_id=self._stack_id, suite=suite.model_dump(mode="json"))

    def place(self, suite: str) -> Place:
        """Where a suite was; the beginning for one that never ran here."""
        try:
            return Place(**self._fields.get("places", {}).get(suite, {}))
        except TypeError:
            return Place()  # written by another version

    def keep_place(self, suite: str, place: Place) -> None:
        """Note where a suite is. Of MOST_SUITES suites, those least recently used are forgotten."""
        others = {k: v for k, v in self._fields.get("places", {}).items() if k != suite}
        kept = list(others.items())[-(MOST_SUITES - 1) :]
        self._write(places={**dict(kept), suite: asdict(place)})

    def _read(self) -> dict[str, Any]:
        try:
            fields = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _write(self, **changes: Any) -> None:
        self._fields |= changes
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(self._fields, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
