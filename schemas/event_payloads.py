"""Required content of events beyond their schema, which consumers can rely on.

    record = read_event("results.lifecycle", message.value())     # raises codec.DecodeError
    share = Ready.model_validate_json(record["detail"])

Events without consumers have no requirements.
"""

import math
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas import catalogue, codec, protocol
from schemas.protocol import Drained, LoadFinished, RunRequest
from schemas.validation_errors import first_mistake
from schemas.watch import WatchRun


class Detail(BaseModel):
    """Base of event details with required fields; additional fields are for users."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Ready(Detail):
    """Of `ready`: which of several instances it is. service: empty for a single instance.
    machine_cores: of the observed machine, from the collector; None in events of earlier
    versions."""

    service: str = ""
    instance_index: int = Field(0, ge=0)
    instance_count: int = Field(1, ge=1)
    machine_cores: float | None = Field(None, gt=0)


class Reason(Detail):
    """Of `failed`: the reason, in a sentence."""

    reason: str


class Refused(Reason):
    """Of `run_refused`. going_on: the run that prevents it, if any."""

    going_on: str = ""


class EvaluationLag(Detail):
    """Of `evaluating`."""

    largest_lag_ms: int


class ClockOffset(Detail):
    """Of `clock_offset`."""

    offset_ms: float


class SteadinessTold(Detail):
    """Of `steadiness`: whether all is steady, and what changes, as text."""

    steady: bool | None
    moving: tuple[str, ...]
    still: tuple[str, ...] = ()


class PartDown(Detail):
    """Of `part_down`: a part of the deployment, and how it ended."""

    part: str
    reason: str


class WatchTrouble(Detail):
    """Of `watch_trouble`. invalid: why its run becomes invalid; empty if it does not."""

    kind: str
    watch: str
    invalid: str = ""


class Concluded(Detail):
    """Of `concluded`. ended: whether the watch of the run has ended."""

    valid: bool
    clean: bool
    ended: bool = False


class PhaseStarted(Detail):
    """Of `phase_started`. end_ms: its scheduled end, epoch milliseconds; None if that depends on
    events."""

    end_ms: int | None = None


class StepBegun(Detail):
    """Of `phase_started` in a search: its step, and the rate of the step."""

    step: int
    step_run_id: str
    rate_per_second: float


class StageJudged(Detail):
    """Of a step of a search: one stage."""

    highest_median_ms: float | None
    rise_ms_per_s: float
    longest_queue_records: float | None


class StepJudged(StepBegun):
    """Of the conclusion `search_step`."""

    long: bool
    measured_s: int
    sustained: bool
    reasons: tuple[str, ...]
    undecided: bool = False
    by_input_alone: bool = False
    limited_by: str = ""
    steady: bool | None = None
    moving: tuple[str, ...] = ()
    warm_up_s: int | None = None
    cpu_share: float | None
    generator_us: float | None = None
    stages: dict[str, StageJudged]


class RateFound(Detail):
    """Of the conclusion `sustainable_throughput`."""

    policy: str
    rate_per_second: float | None
    interval_per_second: tuple[float, float | None]
    confirmed: bool
    verified_at_per_second: float | None
    verified: bool
    ended_by: str = ""

    @model_validator(mode="after")
    def _a_rate_is_verified_somewhere(self) -> Self:
        if self.rate_per_second is not None and self.verified_at_per_second is None:
            raise ValueError("a rate needs verified_at_per_second")
        return self


class RunJudged(Detail):
    """Of the conclusion `run`."""

    clean: bool


class SeveralJudged(Detail):
    """Base of conclusions about several runs."""

    runs: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


class RunsRepeated(SeveralJudged):
    """Of the conclusion `repetition`: the same key of a report."""

    repetition: dict[str, Any]


class PipelinesInterleaved(SeveralJudged):
    """Of the conclusion `interleaved`: the same key of a report, without the pairs of blocks."""

    against: str
    said: str
    interleaved: dict[str, Any]


class BaselineCompared(SeveralJudged):
    """Of the conclusion `baseline`: the same key of a report."""

    against: str
    said: str
    baseline: dict[str, Any]


EVENTS: dict[str, type[BaseModel]] = {
    protocol.READY: Ready,
    protocol.FAILED: Reason,
    protocol.RUN_REFUSED: Refused,
    protocol.RUN_REQUESTED: RunRequest,
    protocol.WATCH_BEGUN: WatchRun,
    protocol.WATCH_TROUBLE: WatchTrouble,
    protocol.LOAD_FINISHED: LoadFinished,
    protocol.EVALUATING: EvaluationLag,
    protocol.DRAINED: Drained,
    protocol.CLOCK_OFFSET: ClockOffset,
    protocol.STEADINESS: SteadinessTold,
    protocol.PART_DOWN: PartDown,
    protocol.CONCLUDED: Concluded,
}
CONCLUSIONS: dict[str, type[BaseModel]] = {
    "run": RunJudged,
    "search_step": StepJudged,
    "sustainable_throughput": RateFound,
    "repetition": RunsRepeated,
    "interleaved": PipelinesInterleaved,
    "baseline": BaselineCompared,
}
# Measures whose values are summed. A sample of a foreign metric may be infinite.
FINITE = {
    catalogue.RESOURCES: (
        "interval_s",
        "cpu_seconds",
        "gc_seconds",
        "jit_seconds",
        "load_1m",
        "frequency_mhz",
        "steal_seconds",
        "cpu_pressure_seconds",
        "io_pressure_seconds",
        "memory_pressure_seconds",
        "run_queue_wait_seconds",
    ),
    catalogue.PIPELINE: ("input_rows_per_second", "processed_rows_per_second"),
    catalogue.PAIRS: ("mean_input_ms",),
}
# Phases of a run; a search comes first.
PHASES = ("search", "prepare", *protocol.PHASES, "drain", "conclude")
# Histograms: the field with the values, in addition to `counts`.
VALUES = {
    catalogue.GENERATOR: "send_delays_us",
    catalogue.LATENCY: "latencies_ms",
    catalogue.SLICES: "latencies_ms",
}


def read_event(topic: str, value: bytes | None) -> dict[str, Any]:
    """A valid event of a `results.*` topic. Raises codec.DecodeError."""
    record = codec.decode_as(catalogue.record_of(topic), value)
    check_event(topic, record)
    return record


def check_event(topic: str, record: dict[str, Any]) -> None:
    """Raise codec.DecodeError if required content of an event is missing or invalid."""
    values = VALUES.get(topic)
    if values and len(record[values]) != len(record["counts"]):
        raise codec.DecodeError(f"{values} and counts differ in length")
    check_finite(topic, record)
    if values and min(record["counts"], default=1) <= 0:
        raise codec.DecodeError("counts must be greater than 0")
    is_phase = topic == catalogue.LIFECYCLE and record["event"] == protocol.PHASE_STARTED
    if is_phase and record["phase"] not in PHASES:
        raise codec.DecodeError(f"{record['phase'][:50]!r} is not a phase")
    if topic == catalogue.RESOURCES and record["interval_s"] <= 0:
        raise codec.DecodeError("interval_s must be greater than 0")
    expected = _expected(topic, record)
    if expected is not None:
        try:
            expected.model_validate_json(record["detail"])
        except ValidationError as error:
            raise codec.DecodeError(first_mistake(error, within="detail")) from error


def check_finite(topic: str, record: dict[str, Any]) -> None:
    """Raise codec.DecodeError if a measure is infinite or not a number."""
    for name in FINITE.get(topic, ()):
        value = record[name]
        values = value if isinstance(value, list) else (value,)
        if not all(math.isfinite(one) for one in values if one is not None):
            raise codec.DecodeError(f"{name} is not a finite number")


def _expected(topic: str, record: dict[str, Any]) -> type[BaseModel] | None:
    if topic == catalogue.CONCLUSIONS:
        return CONCLUSIONS.get(record["kind"])
    if topic != catalogue.LIFECYCLE:
        return None
    if record["event"] == protocol.PHASE_STARTED:
        return StepBegun if record["phase"] == "search" else PhaseStarted
    return EVENTS.get(record["event"])
