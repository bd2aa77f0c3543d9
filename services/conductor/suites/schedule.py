"""What comes next in a suite, and when. Pure.

place = next_place(suite, place, now_ms)     # which step, from when
place = place.after(suite, began_ms)         # it was carried out
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from schemas.suite import Pace, Suite


@dataclass(frozen=True)
class Place:
    """Where a suite is. round: from 1; step: of the next run, from 0; began_ms: when each step, by
    its label, was begun last; runs: concluded so far; failures: how many of the newest turns in a
    row led to nothing: the run did not take place or the step was skipped."""

    round: Annotated[int, Field(ge=1)] = 1
    step: Annotated[int, Field(ge=0)] = 0
    began_ms: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    failures: int = 0

    def after(self, suite: Suite, began_ms: int, took_place: bool) -> "Place":
        """The place once the run of `step`, which began then, was concluded."""
        labels = {step.label for step in suite.steps}
        began = {label: at for label, at in self.began_ms.items() if label in labels}
        moved = replace(
            self,
            began_ms={**began, suite.steps[self.step].label: began_ms},
            runs=self.runs + 1,
            failures=0 if took_place else self.failures + 1,
        )
        return moved.skip(suite)

    def given_up(self, suite: Suite) -> "Place":
        """The place once `step` was skipped because it cannot take place now. It has not begun, so
        it is due again in the next round."""
        return replace(self, failures=self.failures + 1).skip(suite)

    def skip(self, suite: Suite) -> "Place":
        """The place one step on."""
        if self.step + 1 < len(suite.steps):
            return replace(self, step=self.step + 1)
        return replace(self, step=0, round=self.round + 1)

    def within(self, suite: Suite) -> "Place":
        """This place in a suite that may have become shorter."""
        return self if self.step < len(suite.steps) else replace(self, step=0, round=self.round + 1)


def next_place(suite: Suite, place: Place, now_ms: int) -> tuple[Place, int]:
    """The place of the next run and the time from which it is due: the first step from here on that
    is due now, or else the one that is due first. Steps that are not yet due again are skipped."""
    found: list[tuple[int, Place]] = []
    at = place.within(suite)
    for _ in suite.steps:
        step = suite.steps[at.step]
        due_ms = at.began_ms.get(step.label, -step.every_s * 1000) + step.every_s * 1000
        if due_ms <= now_ms:
            return at, now_ms
        found.append((due_ms, at))
        at = at.skip(suite)
    due_ms, at = min(found, key=lambda pair: pair[0])
    return at, due_ms


def pause_ms(pace: Pace, run_ms: int, cpu_seconds: float, cores: int, failures: int) -> int:
    """How long to rest after a run that took `run_ms` and so much processor time of ours.

    Long enough for run and pause together to be within the share of the cores; longer and longer
    while runs fail.
    """
    wanted_ms = 1000 * cpu_seconds / (pace.max_cpu_share * cores)
    rest_ms: int = max(pace.pause_s * 1000, round(wanted_ms) - run_ms)
    if not failures:
        return rest_ms
    backing_off_ms: int = max(1, pace.pause_s) * 1000 * 2 ** min(failures, 20)
    return max(rest_ms, min(backing_off_ms, pace.failure_pause_s * 1000))


def skip_pause_ms(suite: Suite, failures: int) -> int:
    """How long to rest after a step that was skipped: not at all, until a whole round of turns has
    led to nothing; then longer and longer."""
    rounds = failures // len(suite.steps)
    return pause_ms(suite.pace, 0, 0.0, 1, rounds) if rounds else 0
