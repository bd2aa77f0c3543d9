"""What a search observed of one of its steps, for the policy that judges it (`schemas/search.py`).

A policy of one's own is a function `judge` in a Python file:

from schemas.observation import StepObservation

def judge(step: StepObservation) -> str | None:
    # Why the rate is not sustained, in one sentence; None if it is.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Second:
    """One second of the measure phase. at_s: its start within the phase; pushed: input records;
    queue: input records not yet processed at its end, None if unknown."""

    at_s: int
    pushed: int
    queue: float | None


@dataclass(frozen=True)
class StageObserved:
    """Observation of one stage.

    medians_ms: by second of output time from the start of the measure phase, only outputs of that
    phase; drained_s: from the end of the measure phase to the end of the second of its last output;
    missing: expected outputs that never arrived.
    """

    name: str
    medians_ms: dict[int, float]
    seconds: tuple[Second, ...] = ()
    drained_s: float = 0.0
    missing: int = 0


@dataclass(frozen=True)
class StepObservation:
    """Observation of one step. cpu_share: mean share used of the cores available to the pipeline,
    None if not measured; trouble: why the step is not valid; broken_by: the service of Tidegauge
    whose end ended the step; generator_us: CPU time of the generator per record, microseconds, None
    if not measured."""

    stages: tuple[StageObserved, ...]
    intended: int = 0
    failed_sends: int = 0
    cpu_share: float | None = None
    trouble: tuple[str, ...] = ()
    broken_by: str = ""
    generator_us: float | None = None
