"""What the services say to each other: names, commands and their bodies.

A run is: `run` (console to conductor) → `prepare` (conductor to all) → every service answers
`ready` → `start` (with absolute times, so that all agree on the phases) → the generator answers
`load_finished` → `drain` → the evaluator answers `drained` → `stop` → pipelines answer `stopped`
→ the conductor publishes `concluded`. Commands travel on `control.runs` as `control_command`
records whose body is the JSON of a model below; answers travel on `results.lifecycle`.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Stage = Literal["ingest", "parse", "join", "tumbling", "sliding"]
STAGES: tuple[Stage, ...] = ("ingest", "parse", "join", "tumbling", "sliding")
PHASES = ("warm_up", "measure", "cool_down")
DEFINITIONS = ("latest", "mean", "event_time")
VERDICTS = ("exact", "wrong", "missing", "late", "duplicate", "unexpected")
FAILED_VERDICTS = VERDICTS[1:]

COMMANDS = ("run", "cancel", "prepare", "start", "drain", "stop")

# Events on results.lifecycle.
SERVICE_STARTED = "service_started"
SERVICE_STOPPED = "service_stopped"
RUN_REQUESTED = "run_requested"  # detail: the RunRequest and the environment
RUN_REFUSED = "run_refused"  # detail: {"reason"}
PREPARING = "preparing"  # detail: the RunPlan
READY = "ready"  # from generator, evaluator, collector, and per pipeline from spark_pipeline
# phase: prepare, warm_up, measure, cool_down, drain or conclude; detail of those of the load:
# {"start_ms", "end_ms"} by the schedule
PHASE_STARTED = "phase_started"
LOAD_FINISHED = "load_finished"  # detail: LoadFinished
DRAINED = "drained"  # detail: Drained
STOPPED = "stopped"  # per pipeline
FAILED = "failed"  # a service cannot go on with the run; detail: {"reason"}
CONCLUDED = "concluded"  # detail: {"valid", "invalid_reasons"}

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]


class Model(BaseModel):
    """Base of all contract models: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Load(Model):
    """When records are due. `constant`: `rate_per_second` records per second, evenly spaced."""

    shape: Literal["constant"] = "constant"
    rate_per_second: float = Field(gt=0, le=10_000_000)


class Content(Model):
    """What the records say. `ndw`: the recorded sample, one source minute per second."""

    source: Literal["ndw"] = "ndw"


class Phases(Model):
    """Length of each phase of the load, seconds (design: warm-up → measure → cool-down)."""

    warm_up_s: int = Field(10, ge=0, le=86_400)
    measure_s: int = Field(30, ge=1, le=31_536_000)
    cool_down_s: int = Field(5, ge=3, le=3_600)

    @property
    def total_s(self) -> int:
        """Seconds that the load lasts."""
        return self.warm_up_s + self.measure_s + self.cool_down_s


class Judgement(Model):
    """How outputs are judged.

    deadline_ms: an output later than this after its latest input is late. give_up_ms: one that
    has not come by then is missing. relative_tolerance: for means and relative changes, whose
    sums engines may add in any order; everything else must be equal.
    """

    deadline_ms: int = Field(10_000, ge=1)
    give_up_ms: int = Field(20_000, ge=1)
    relative_tolerance: float = Field(1e-9, ge=0, lt=0.01)

    @model_validator(mode="after")
    def _in_order(self) -> "Judgement":
        if self.give_up_ms < self.deadline_ms:
            raise ValueError("give_up_ms must not be less than deadline_ms")
        return self


class Validity(Model):
    """When a run may be used. Each rule broken gives one invalid reason."""

    max_send_delay_p99_ms: float = Field(50, gt=0)
    max_failed_records: int = Field(0, ge=0)


class Workload(Model):
    """One workload: what load, for how long, how judged (`workloads/NAME.toml`)."""

    name: Name
    summary: str
    load: Load
    content: Content = Content()
    phases: Phases = Phases()
    judgement: Judgement = Judgement()
    validity: Validity = Validity()
    stages: tuple[Stage, ...] = STAGES


class Pipeline(Model):
    """One pipeline under test (`pipelines/NAME.toml`).

    batch_duration_s: real-time mode, how long a batch runs before it commits.
    trigger_interval_ms: micro-batch mode, 0 means as fast as possible.
    incomplete_windows: `withhold` publishes a window only when every lane of every kind is there;
    `publish` publishes what there is when the watermark passes. spark_conf wins over the defaults.
    """

    name: Name
    summary: str
    mode: Literal["real-time", "micro-batch"]
    implementation: Literal["customised"]
    stages: tuple[Stage, ...] = STAGES
    incomplete_windows: Literal["withhold", "publish"] = "withhold"
    watermark_s: int = Field(10, ge=0)
    batch_duration_s: int = Field(300, ge=5)
    trigger_interval_ms: int = Field(0, ge=0)
    shuffle_partitions: int = Field(1, ge=1, le=1024)
    driver_memory_mb: int = Field(1024, ge=512)
    spark_conf: dict[str, str] = {}


class RunRequest(Model):
    """Body of `run`: everything that defines a run, so that it can be read back years later."""

    run_id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,80}$")
    workload: Workload
    pipelines: tuple[Pipeline, ...] = Field(min_length=1, max_length=8)
    stages: tuple[Stage, ...] = Field(min_length=1)
    seed: int = 0
    environment: dict[str, Any] = {}


class RunPlan(Model):
    """Body of `prepare`. start_offsets: per topic, the next offset of each partition, in order,
    taken before anything of the run was written; readers begin there."""

    request: RunRequest
    start_offsets: dict[str, tuple[int, ...]]


class PhasePlan(Model):
    """Body of `start`. load_start_ms: epoch milliseconds of the first scheduled record, a whole
    second, so that every second of event time is complete."""

    load_start_ms: int = Field(multiple_of=1000)
    phases: Phases

    @property
    def measure_start_ms(self) -> int:
        """Epoch milliseconds at which the measure phase begins, inclusive."""
        return self.load_start_ms + 1000 * self.phases.warm_up_s

    @property
    def measure_end_ms(self) -> int:
        """Epoch milliseconds at which the measure phase ends, exclusive."""
        return self.measure_start_ms + 1000 * self.phases.measure_s

    @property
    def load_end_ms(self) -> int:
        """Epoch milliseconds at which the load ends, exclusive."""
        return self.measure_end_ms + 1000 * self.phases.cool_down_s

    def phase_of(self, scheduled_us: int) -> str:
        """Phase of something scheduled at `scheduled_us` (epoch microseconds).

        An output has the phase of its latest scheduled contributing input, so which outputs are
        judged follows from the input topics alone.
        """
        if scheduled_us < self.measure_start_ms * 1000:
            return "warm_up"
        return "measure" if scheduled_us < self.measure_end_ms * 1000 else "cool_down"


class LoadFinished(Model):
    """Detail of `load_finished` and body of `drain`: end_offsets per input topic and partition."""

    intended: int
    acknowledged: int
    failed: int
    end_offsets: dict[str, tuple[int, ...]]


class Drained(Model):
    """Detail of `drained`: verdict totals of the measure phase, by pipeline and stage."""

    verdicts: dict[str, dict[str, dict[str, int]]]


class Stop(Model):
    """Body of `stop` and `cancel`."""

    reason: str = ""


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Stages from `0-4`, `2`, `0,3` or names; in order. Raises ValueError with what is allowed."""
    chosen: set[int] = set()
    for part in (piece.strip() for piece in text.split(",")):
        span = re.fullmatch(r"([0-4])-([0-4])", part)
        if span and int(span[1]) <= int(span[2]):
            chosen.update(range(int(span[1]), int(span[2]) + 1))
        elif re.fullmatch(r"[0-4]", part):
            chosen.add(int(part))
        elif part in STAGES:
            chosen.add(STAGES.index(part))
        else:
            raise ValueError(f"stages must be like 0-4, 2 or join,tumbling, not {text!r}")
    return tuple(STAGES[number] for number in sorted(chosen))
