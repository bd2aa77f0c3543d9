"""A suite: runs without end, one after the other. One TOML file each in `suites/`.

`SuiteFile` is written by users, with names of workloads and pipelines; `Suite` is sent to the
conductor, with the workloads and pipelines themselves, one step per rate.
"""

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from schemas.model import Model, Name, Stage
from schemas.pipeline import Pipeline
from schemas.workload import ThresholdLine, Workload

MOST_STEPS = 200
Kind = Literal["latency", "bursts", "searches", "failures", "calibration", "engines"]
CALIBRATION = "calibration"


class Pace(Model):
    """How much of the machine a suite may use, and when it waits.

    max_cpu_share: of all cores, on average over a run and the pause after it; the pause is as long
    as that requires, and at least pause_s. busy_share: while others use more than this share of the
    cores the next run waits, at most patience_s; 1 never waits. max_cores: max_cpu_share in cores;
    the lower limit applies. hours_per_day: total duration of runs in any 24 h. keep_warm_s: how
    long pipelines are kept for a next run with the same ones; 0 keeps none. failure_pause_s:
    longest pause after runs that could not take place; the pause doubles up to this.
    """

    max_cpu_share: float = Field(0.5, gt=0, le=1)
    pause_s: int = Field(60, ge=0, le=86_400)
    busy_share: float = Field(0.4, gt=0, le=1)
    patience_s: int = Field(900, ge=0, le=604_800)
    failure_pause_s: int = Field(1800, ge=0, le=86_400)
    max_cores: float | None = Field(None, gt=0)
    hours_per_day: float = Field(24, gt=0, le=24)
    keep_warm_s: int = Field(600, ge=0, le=3600)

    def allowed_cores(self, cores: float) -> float:
        """Cores that the suite may use on average, of `cores`."""
        share = self.max_cpu_share * cores
        return share if self.max_cores is None else min(share, self.max_cores)


NoticeKind = Literal[
    "change_point",
    "threshold",
    "invalid",
    "unclean",
    "part_down",
    "watch_trouble",
    "no_results",
]


class Notify(Model):
    """Which webhooks of the settings are notified of what while a suite runs.

    to: names of webhooks; all if empty. on: kinds of notifications; all if empty.
    no_results_minutes: overrides the setting; None keeps it.
    """

    to: tuple[Name, ...] = Field((), max_length=16)
    on: tuple[NoticeKind, ...] = ()
    no_results_minutes: float | None = Field(None, ge=0, le=100_000)


class SuiteItem(Model):
    """One entry of a suite's file: a workload on pipelines, measured at once on the same input.

    domain: name or folder of another domain than the workload's. pipelines, stages: default to the
    workload's own. rates: records per second, a step each; defaults to the workload's rate, which
    may be a share of the sustainable rate. scale: factor for bursts or the backlog. every_s:
    minimum interval; 0 is in every round. kind: what the step measures, for the rotation; derived
    from its workload by default. thresholds: in addition to the workload's; baseline: the reference
    run of those with `baseline`; by default the medians of the last seven valid runs of the same
    workload and pipelines with no failed threshold.
    """

    workload: str
    domain: str = ""
    kind: Kind | None = None
    thresholds: tuple[ThresholdLine, ...] = Field((), max_length=50)
    baseline: str = Field("", max_length=100)
    pipelines: tuple[str, ...] = Field((), max_length=8)
    stages: tuple[Stage, ...] = ()
    rates: tuple[float, ...] = Field((), max_length=50)
    duration_s: int | None = None
    warm_up_s: int | Literal["auto"] | None = None
    scale: float | None = Field(None, gt=0, le=1)
    every_s: int = Field(0, ge=0, le=31_536_000)


Shares = dict[Kind, Annotated[float, Field(gt=0, le=1000)]]


class SuiteFile(Model):
    """A suite file (`suites/NAME.toml`). rotation: shares of run time by kind of step; without one,
    steps run in order."""

    name: Name
    summary: str
    pace: Pace = Pace()
    notify: Notify = Notify()
    rotation: Shares = Field(default_factory=dict)
    steps: tuple[SuiteItem, ...] = Field(min_length=1, max_length=MOST_STEPS)


class Step(Model):
    """One run of a suite. stages: empty: all of the domain. every_s: minimum interval. asked: its
    kind, if the suite's file gives it. baseline: as in SuiteItem. number: among the steps of the
    suite that the rest of the label does not distinguish; set by the suite."""

    workload: Workload
    pipelines: tuple[Pipeline, ...] = Field(min_length=1, max_length=8)
    stages: tuple[Stage, ...] = ()
    every_s: int = Field(0, ge=0)
    asked: Kind | None = None
    baseline: str = ""
    number: int = Field(1, ge=1)

    @property
    def kind(self) -> Kind:
        """What it measures: as in the file, or else derived from its workload."""
        if self.asked:
            return self.asked
        if self.workload.search:
            return "searches"
        if self.workload.kills:
            return "failures"
        if all(pipeline.engine == CALIBRATION for pipeline in self.pipelines):
            return "calibration"
        return "latency" if self.workload.load.HAS_ONE_LEVEL else "bursts"

    def same_pipelines(self, other: "Step") -> bool:
        """Whether one run could use the pipelines of the other."""
        own, others = self.workload, other.workload
        return (self.pipelines, self.stages) == (other.pipelines, other.stages) and all(
            getattr(own, name) == getattr(others, name)
            for name in ("domain", "windows", "partitions", "workers")
        )

    @model_validator(mode="after")
    def _searchable(self) -> "Step":
        if self.workload.search and len(self.pipelines) > 1:
            raise ValueError("a search for the sustainable rate needs exactly one pipeline")
        return self

    @property
    def label(self) -> str:
        """For display, and to identify a step after the suite's file has changed."""
        names = "+".join(pipeline.name for pipeline in self.pipelines)
        rate, share = self.workload.load.base_rate_per_second, self.workload.sustainable_share
        load = f" at {rate:g}/s" if rate else ""
        if share is not None:
            load = f" at {share:.0%} of the sustainable rate"
        stages = ", ".join(self.stages) or "all stages"
        number = f", no. {self.number}" if self.number > 1 else ""
        return f"{self.workload.name}{load} on {names} ({stages}){number}"


class Suite(Model):
    """A suite as carried out. Body of the command `suite`."""

    name: Name
    summary: str = ""
    pace: Pace = Pace()
    notify: Notify = Notify()
    rotation: Shares = Field(default_factory=dict)
    steps: tuple[Step, ...] = Field(min_length=1, max_length=MOST_STEPS)

    @field_validator("steps")
    @classmethod
    def _numbered(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Steps with separate labels, also where they differ only in scale, durations or
        thresholds."""
        seen: Counter[str] = Counter()
        numbered = []
        for step in steps:
            label = step.model_copy(update={"number": 1}).label
            seen[label] += 1
            numbered.append(step.model_copy(update={"number": seen[label]}))
        return tuple(numbered)

    @model_validator(mode="after")
    def _rotates_what_it_has(self) -> "Suite":
        lacking = {step.kind for step in self.steps} ^ set(self.rotation)
        if self.rotation and lacking:
            raise ValueError(
                "rotation must have a share for every kind of its steps and for no other: "
                + ", ".join(sorted(lacking))
            )
        return self


class SuiteRun(Model):
    """The suite of a run, and the run's position in it: round and step count from 1."""

    name: Name
    round: int = Field(ge=1)
    step: int = Field(ge=1)


class SuitePosition(Model):
    """Detail of `suite` events: the state of a suite.

    state: `running` (run_id), `pausing` (until next_at_ms, or without it until the last run is
    analysed), `waiting` (reason: the machine is busy), `skipping` (reason: this step cannot take
    place now). round, step: the current or next run; steps: steps per round. runs: number concluded
    since the suite began, valid or not. skipped: steps that were skipped at their last turn, with
    the reason, a sentence each.
    """

    name: Name
    state: str = Field(pattern="^(running|pausing|waiting|skipping)$")
    round: int
    step: int
    steps: int
    label: str
    runs: int = 0
    run_id: str = ""
    reason: str = ""
    next_at_ms: int | None = None
    skipped: tuple[str, ...] = ()
