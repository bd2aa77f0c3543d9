"""State of a conductor over restarts: the current run, the suite and its place.

One small JSON file, replaced atomically, so that a kill leaves the old or the new one. A file that
is invalid nevertheless, such as after a disk failure, is set aside and logged: a suite then begins
anew, and an open run is found on the bus.

The next step of a suite, and when:

place = next_place(suite, place, now_ms)     # which step, from when
place = place.after(suite, began_ms)         # it was carried out
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from schemas.suite import Pace, Suite
from schemas.validation_errors import first_mistake
from services.runtime.files import write_whole
from services.runtime.logs import get_log

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MOST_RECENT = 3_000
SKIPPED_MS = 60_000  # time charged for a turn without a run
MOST_SUITES = 100
MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class SuitePlace:
    """Position in a suite. round: from 1; step: of the next run, from 0; began_ms: last start of
    each step, by label; runs: concluded so far; failures: consecutive recent turns without a
    result: the run did not take place or the step was skipped. spent_ms: duration of runs by kind,
    at least what `_charged` charges; recent: start and duration of those of the last day,
    milliseconds."""

    round: Annotated[int, Field(ge=1)] = 1
    step: Annotated[int, Field(ge=0)] = 0
    began_ms: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    failures: int = 0
    spent_ms: dict[str, int] = field(default_factory=dict)
    recent: tuple[tuple[int, int], ...] = ()

    def after(self, suite: Suite, began_ms: int, took_place: bool, run_ms: int = 0) -> "SuitePlace":
        """The place after the run of `step`, which began then and took `run_ms`, was concluded."""
        labels = {step.label for step in suite.steps}
        began = {label: at for label, at in self.began_ms.items() if label in labels}
        kind = suite.steps[self.step].kind
        recent = [each for each in self.recent if each[0] > began_ms - DAY_MS]
        moved = replace(
            self,
            spent_ms=_charged(suite, self, kind, run_ms),
            recent=(*recent, (began_ms, run_ms))[-MOST_RECENT:],
            began_ms={**began, suite.steps[self.step].label: began_ms},
            runs=self.runs + 1,
            failures=0 if took_place else self.failures + 1,
        )
        return moved.skip(suite)

    def given_up(self, suite: Suite, now_ms: int) -> "SuitePlace":
        """The place after `step` was skipped because it cannot take place now. It has not begun, so
        it is due again in the next round. In a rotation it counts as a turn, so that others get
        theirs."""
        place = replace(self, failures=self.failures + 1)
        if suite.rotation:
            step = suite.steps[self.step]
            place = replace(
                place,
                began_ms={**self.began_ms, step.label: now_ms},
                spent_ms=_charged(suite, self, step.kind, SKIPPED_MS),
            )
        return place.skip(suite)

    def skip(self, suite: Suite) -> "SuitePlace":
        """The place one step later."""
        if self.step + 1 < len(suite.steps):
            return replace(self, step=self.step + 1)
        return replace(self, step=0, round=self.round + 1)

    def within(self, suite: Suite) -> "SuitePlace":
        """This place limited to a suite that may have become shorter."""
        return self if self.step < len(suite.steps) else replace(self, step=0, round=self.round + 1)


def _charged(suite: Suite, place: SuitePlace, kind: str, turn_ms: int) -> dict[str, int]:
    """`spent_ms` after a turn of a kind. In a rotation every kind is charged so much that it lacks
    at most what one long run of the kind with the smallest share accounts for. Otherwise a kind
    that is new, or whose share was increased, would be the only one for days."""
    spent_ms = {**place.spent_ms, kind: place.spent_ms.get(kind, 0) + turn_ms}
    shares = suite.rotation
    if not shares:
        return spent_ms
    longest_ms = max(HOUR_MS, turn_ms, *(length_ms for _began_ms, length_ms in place.recent))
    most = max(spent_ms.get(each, 0) / share for each, share in shares.items())
    least = most - longest_ms / min(shares.values())
    return {
        each: max(spent_ms.get(each, 0), round(least * share)) for each, share in shares.items()
    }


def next_place(suite: Suite, place: SuitePlace, now_ms: int) -> tuple[SuitePlace, int]:
    """The place of the next run and the time from which it is due, by order or by the rotation."""
    find = _rotated if suite.rotation else _in_order
    result, due_ms = find(suite, place.within(suite), now_ms)
    return result, max(due_ms, budget_ms(suite.pace, place, now_ms))


def budget_ms(pace: Pace, place: SuitePlace, now_ms: int) -> int:
    """When the runs of the last 24 h leave budget for another; at the earliest now."""
    spent = [each for each in place.recent if each[0] > now_ms - DAY_MS]
    total_ms, from_ms = sum(length for _began, length in spent), now_ms
    for began, length in spent:
        if total_ms < pace.hours_per_day * HOUR_MS:
            break
        total_ms, from_ms = total_ms - length, began + DAY_MS
    return from_ms


def _rotated(suite: Suite, place: SuitePlace, now_ms: int) -> tuple[SuitePlace, int]:
    """The following step if it has the kind and pipelines of the last one and has not had its turn
    since. Otherwise, from the kind furthest below its share, the step that has waited longest. If
    none is due, the one due first."""
    due = {number: _due_ms(suite, place, number) for number in range(len(suite.steps))}
    ready = [number for number, at_ms in due.items() if at_ms <= now_ms]
    if not ready:
        number = min(due, key=lambda each: due[each])
        return _at(place, number), due[number]
    if place.step in ready and _goes_on(suite, place):
        return place, now_ms
    shares = suite.rotation

    def turn(number: int) -> tuple[float, int, int]:
        step = suite.steps[number]
        spent = place.spent_ms.get(step.kind, 0) / shares[step.kind]
        return spent, place.began_ms.get(step.label, -1), number

    return _at(place, min(ready, key=turn)), now_ms


def _goes_on(suite: Suite, place: SuitePlace) -> bool:
    if place.step == 0:
        return False
    last, step = suite.steps[place.step - 1], suite.steps[place.step]
    is_alike = last.kind == step.kind and last.same_pipelines(step)
    began = place.began_ms
    return is_alike and began.get(step.label, -1) < began.get(last.label, -1)


def _at(place: SuitePlace, number: int) -> SuitePlace:
    return replace(
        place, step=number, round=place.round if number >= place.step else place.round + 1
    )


def _due_ms(suite: Suite, place: SuitePlace, number: int) -> int:
    step = suite.steps[number]
    return place.began_ms.get(step.label, -step.every_s * 1000) + step.every_s * 1000


def _in_order(suite: Suite, place: SuitePlace, now_ms: int) -> tuple[SuitePlace, int]:
    """The first step from here on that is due now, or else the one due first. Steps that are not
    due again yet are skipped."""
    result: list[tuple[int, SuitePlace]] = []
    at = place
    for _ in suite.steps:
        due_ms = _due_ms(suite, at, at.step)
        if due_ms <= now_ms:
            return at, now_ms
        result.append((due_ms, at))
        at = at.skip(suite)
    due_ms, at = min(result, key=lambda pair: pair[0])
    return at, due_ms


def pause_ms(pace: Pace, run_ms: int, cpu_seconds: float, cores: float, failures: int) -> int:
    """Pause after a run that took `run_ms` and `cpu_seconds` of our processor time.

    Keeps run and pause together within the share of the cores; grows while runs fail.
    """
    wanted_ms = 1000 * cpu_seconds / pace.allowed_cores(cores)
    rest_ms: int = max(pace.pause_s * 1000, round(wanted_ms) - run_ms)
    if not failures:
        return rest_ms
    backing_off_ms: int = max(1, pace.pause_s) * 1000 * 2 ** min(failures, 20)
    return max(rest_ms, min(backing_off_ms, pace.failure_pause_s * 1000))


def skip_pause_ms(suite: Suite, failures: int) -> int:
    """Pause after a skipped step: none until a whole round of turns had no result, then growing."""
    rounds = failures // len(suite.steps)
    return pause_ms(suite.pace, 0, 0.0, 1, rounds) if rounds else 0


_PLACE = TypeAdapter(SuitePlace)


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

    def place(self, suite: str) -> SuitePlace:
        """The place in a suite; the start for one that never ran here."""
        try:
            place = json.dumps(self._noted.places.get(suite, {}))
            return _PLACE.validate_json(place, strict=True)
        except ValidationError:
            return SuitePlace()  # written by another version

    def keep_place(self, suite: str, place: SuitePlace) -> None:
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
            get_log().warning("notes_set_aside", path=str(aside), reason=reason)
            return SuiteStateFile()

    def _write(self, **changes: Any) -> None:
        self._noted = self._noted.model_copy(update=changes)
        write_whole(self._path, self._noted.model_dump_json())
