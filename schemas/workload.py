"""A workload: load, duration and judgement. One TOML file each in `workloads/`."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from schemas.content import Content, Faults
from schemas.load import PERIODIC, Constant, Fluctuating, Load
from schemas.model import Model, Name, Stage
from schemas.pipeline import Purpose
from schemas.search import MOST_PARTITIONS, MOST_WORKERS, Scaling, Search
from schemas.threshold import parse_threshold

__all__ = [
    "Content",
    "Faults",
    "Judgement",
    "Kill",
    "Phases",
    "Search",
    "Validity",
    "Workload",
]

AUTO = "auto"
LEAST_COOL_DOWN_S = 3
LEAST_WARM_UP_S, MOST_WARM_UP_S = 10, 180
LONG_WARM_UP_S = 60  # after which optimising JIT compilers have finished
DEFAULT_DOMAIN = "traffic"
# `<stage>_s`, or `<stage>_slide_s` of a stage with sliding windows.
WindowName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}_s$")]
WindowSeconds = Annotated[int, Field(ge=1, le=86_400)]
Transport = Literal["kafka", "tcp", "udp", "zeromq"]
KillTarget = Literal["driver", "worker", "broker", "evaluator", "network", "record", "disk"]
KillSignal = Literal["kill", "terminate", "pause", "cut", "slow", "raise", "fill"]
LASTING: Final = ("pause", "cut", "slow", "fill")
NAMES_OF_SIGNALS: Final[dict[KillSignal, str]] = {
    "kill": "kill",
    "terminate": "termination",
    "pause": "pause",
    "cut": "cut",
    "slow": "slowing",
    "raise": "exception",
    "fill": "filling",
}
SIGNALS_OF: Final[dict[str, tuple[KillSignal, ...]]] = {  # the first is the default
    "network": ("cut", "pause", "slow"),
    "record": ("raise",),
    "disk": ("fill",),
}
PLANTED: Final[tuple[KillTarget, ...]] = ("record", "disk")  # they make programs fail
SIGNALS_OF_PROCESSES: Final[tuple[KillSignal, ...]] = ("kill", "terminate", "pause")
MAX_RATE_OF_PAIRS_PER_SECOND = 1_000


class Phases(Model):
    """Duration of each phase of the load, seconds: warm-up, measure, cool-down.

    until_steady: the warm-up ends early, once every stage is steady (analysis/steadiness.py), but
    not before LEAST_WARM_UP_S. `warm_up_s = "auto"` is this with MOST_WARM_UP_S. optimised: JVMs
    compile as in a long run, whatever the warm-up; always with until_steady.
    """

    warm_up_s: int = Field(10, ge=0, le=86_400)
    measure_s: int = Field(30, ge=1, le=31_536_000)
    cool_down_s: int = Field(5, ge=LEAST_COOL_DOWN_S, le=3_600)
    until_steady: bool = False
    optimised: bool = False

    @model_validator(mode="before")
    @classmethod
    def _auto(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("warm_up_s") == AUTO:
            return fields | {"warm_up_s": MOST_WARM_UP_S, "until_steady": True}
        return fields

    @model_validator(mode="after")
    def _long_enough(self) -> "Phases":
        if self.until_steady and self.warm_up_s < LEAST_WARM_UP_S:
            raise ValueError(f"until_steady needs a warm_up_s of at least {LEAST_WARM_UP_S}")
        return self

    @property
    def total_s(self) -> int:
        """Duration of the load in seconds."""
        return self.warm_up_s + self.measure_s + self.cool_down_s


class Judgement(Model):
    """How outputs are judged.

    deadline_ms: an output later than this after its latest input is late. deadline_of: whether that
    is counted to its append (`latest`), or until consumers of committed records could read it
    (`visible`), which is the same for an output without a transaction. give_up_ms: an output
    that has not arrived by then is missing. relative_tolerance: for sums and means of doubles, and
    relative changes, which engines may add in any order; everything else must be equal.
    """

    deadline_ms: int = Field(10_000, ge=1)
    deadline_of: Literal["latest", "visible"] = "latest"
    give_up_ms: int = Field(20_000, ge=1)
    relative_tolerance: float = Field(1e-9, ge=0, lt=0.01)

    @model_validator(mode="after")
    def _in_order(self) -> "Judgement":
        if self.give_up_ms < self.deadline_ms:
            raise ValueError("give_up_ms must not be less than deadline_ms")
        return self


class Validity(Model):
    """When a run is valid. Each violated rule gives one invalid reason; None disables a rule.

    max_clock_ahead_ms, max_clock_behind_ms: offset of the generator's clock from the broker's,
    measured with records sent before the load; behind includes the minimum transit time.
    max_evaluator_lag_ms: maximum lag of the evaluation. Shares of the machine's processor time
    during the run: max_steal_share, used by other machines on the same host; max_others_share, used
    by processes outside the stack. must_be_steady: every stage was steady when the measure
    phase began; must_be_undisturbed: only the pipeline caused late seconds
    (analysis/lateness.py). A rule is violated if its value is unknown, except max_others_share
    if the collector sees no process but its own, as in a container.
    """

    max_send_delay_p99_ms: float = Field(50, gt=0)
    max_failed_records: int = Field(0, ge=0)
    max_clock_ahead_ms: float = Field(5, ge=0)
    max_clock_behind_ms: float = Field(500, gt=0)
    max_evaluator_lag_ms: int | None = Field(None, gt=0)
    max_steal_share: float | None = Field(None, ge=0, le=1)
    max_others_share: float | None = Field(None, ge=0, le=1)
    must_be_steady: bool = False
    must_be_undisturbed: bool = False


def needs_search(line: str) -> bool:
    """Whether a threshold limits the result of a search."""
    return parse_threshold(line).needs_search


def _checked_threshold(line: str) -> str:
    parse_threshold(line)
    return line


ThresholdLine = Annotated[str, AfterValidator(_checked_threshold)]


class Kill(Model):
    """Kills, terminates or pauses processes of the stack on this machine, disturbs the network or
    the disk of a pipeline, or lets its program raise.

    target: driver, the main process of a pipeline; worker, the processes in which its tasks run, if
    the engine has some on this machine; broker; evaluator; network, between the Kafka clients of
    the pipelines and the broker; record, the next one that each pipeline decodes; disk, with the
    state of each pipeline, which is of disk_mb mebibytes for the whole run. at_s: seconds after the
    measure phase began. signal: kill is SIGKILL; terminate is SIGTERM, as in a redeployment; pause
    is SIGSTOP, and SIGCONT `for_s` seconds later; of the network nothing passes for that time. Only
    of the network: cut ends all connections and refuses new ones for `for_s` seconds; slow delays
    every answer of the broker by delay_ms for that time. raise: the function that decodes the
    record throws, once; fill: the disk has no space left for `for_s` seconds. most: of a pipeline's
    processes; None: all.
    """

    target: KillTarget
    at_s: int = Field(0, ge=0)
    signal: KillSignal = "kill"
    for_s: int = Field(5, ge=1, le=600)
    delay_ms: int = Field(100, ge=1, le=60_000)
    disk_mb: int = Field(256, ge=16, le=65_536)
    most: int | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fits_by_default(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and (signals := SIGNALS_OF.get(str(fields.get("target")))):
            return {"signal": signals[0]} | fields
        return fields

    @model_validator(mode="after")
    def _fits_the_target(self) -> "Kill":
        signals = SIGNALS_OF.get(self.target, SIGNALS_OF_PROCESSES)
        if self.signal not in signals:
            allowed = " or ".join(signals)
            raise ValueError(f"signal {self.signal}: the target {self.target} has {allowed}")
        return self

    @property
    def said(self) -> str:
        """What happens: `kill of the driver`, `pause of 1 worker for 5 s`."""
        if self.target == "record":
            return f"{NAMES_OF_SIGNALS[self.signal]} at a record"
        plural = "s" if self.most is not None and self.most > 1 else ""
        whom = "the" if self.most is None else str(self.most)
        length = f" for {self.for_s} s" if self.signal in LASTING else ""
        by = f" by {self.delay_ms} ms" if self.signal == "slow" else ""
        return f"{NAMES_OF_SIGNALS[self.signal]} of {whom} {self.target}{plural}{by}{length}"


class Workload(Model):
    """One workload: load, duration and judgement (`workloads/NAME.toml`).

    domain: of the records, by name, or by the path of a folder.
    pairs: whether every single output is published with the times of its inputs (results.pairs), in
    addition to the counts; `auto` publishes them if the load never exceeds 1,000 records/s.
    windows: window sizes, seconds of event time, that differ from the domain's.
    stages: the judged stages; empty: all of the domain.
    measures, source: what is measured, and where that is defined, as text. pipelines: measured
    unless the command names others. keep_up_s: how long they must have kept up with probe traffic
    before the load starts; if the warm-up lasts until all is steady, one output of a stage is
    enough.
    processing_time: also measure from when the inputs were handed to the pipeline, by a proxy
    between its Kafka clients and the broker.
    pipelines_start_s: delay of their start after that of the load (0: before it). transport: how
    records arrive: directly in Kafka, or through the gateway. partitions: of each input topic,
    which are then separate topics, and of output topics made for the run; None: as set for the
    services. purpose: what is measured, for pipelines that have other settings for it.
    workers: of each pipeline whose engine defines workers; None: as the pipeline sets it.
    search: the run first searches the sustainable rate, beginning with the load's, and then takes
    place at a share of it. scaling: repeat this with increasing numbers of workers.
    sustainable_share: use this share of the last rate found instead of the load's own. floor_s:
    duration of a plain copy measured before the run (0: none), to compare latencies with those of
    Tidegauge itself. kills: what is killed, when. thresholds: limits on its figures
    (schemas/threshold.py).
    """

    name: Name
    summary: str
    domain: str = Field(DEFAULT_DOMAIN, max_length=4096)
    load: Load
    content: Content = Content()
    faults: Faults = Faults()
    windows: dict[WindowName, WindowSeconds] = Field(default_factory=dict, max_length=40)
    phases: Phases = Phases()
    judgement: Judgement = Judgement()
    validity: Validity = Validity()
    stages: tuple[Stage, ...] = ()
    pairs: Literal["auto", "all", "none"] = "auto"

    measures: str = ""
    source: str = ""
    pipelines: tuple[Name, ...] = ()
    keep_up_s: int = Field(16, ge=2, le=600)
    pipelines_start_s: int = Field(0, ge=0, le=3_600)
    processing_time: bool = False
    transport: Transport = "kafka"
    partitions: int | None = Field(None, ge=1, le=MOST_PARTITIONS)
    purpose: Purpose | None = None
    workers: int | None = Field(None, ge=1, le=MOST_WORKERS)
    search: Search | None = None
    scaling: Scaling | None = None
    sustainable_share: float | None = Field(None, gt=0, le=10)
    floor_s: int = Field(0, ge=0, le=600)
    kills: tuple[Kill, ...] = Field((), max_length=20)
    thresholds: tuple[ThresholdLine, ...] = Field((), max_length=50)

    def at_rate(self, rate_per_second: float) -> "Workload":
        """The same with its load at another rate, records per second; the low rate of a load that
        fluctuates changes in proportion."""
        changes = {"rate_per_second": rate_per_second}
        if isinstance(self.load, Fluctuating) and self.load.low_rate_per_second is not None:
            share = rate_per_second / self.load.rate_per_second
            changes["low_rate_per_second"] = share * self.load.low_rate_per_second
        load = self.load.model_copy(update=changes)
        return self.model_copy(update={"load": load})

    @property
    def is_optimised(self) -> bool:
        """Whether JVMs compile as in a long run: a sustainable rate is that of optimised code, and
        a warm-up until all is steady waits for their compilers."""
        at_limit = self.search is not None or self.sustainable_share is not None
        return self.phases.optimised or self.phases.until_steady or at_limit

    @property
    def least_warm_up_s(self) -> int:
        """Warm-up in seconds for which an engine chooses its compilers: a long one for optimised
        code."""
        warm_up_s = self.phases.warm_up_s
        return max(warm_up_s, LONG_WARM_UP_S) if self.is_optimised else warm_up_s

    @property
    def has_long_warm_up(self) -> bool:
        """Whether an engine compiles for a long warm-up. A running program serves only runs that
        agree in this."""
        return self.least_warm_up_s >= LONG_WARM_UP_S

    @property
    def has_gateway(self) -> bool:
        """Whether records are sent over the network: to the gateway, or to a system behind
        sockets."""
        return self.transport != "kafka"

    @property
    def has_proxy(self) -> bool:
        """Whether a proxy notes when the inputs are handed to each pipeline: if `processing_time`
        is asked for, also by a threshold, or if the network is disturbed."""
        if self.has_fault_of("network"):
            return True
        of_thresholds = (parse_threshold(line).definition for line in self.thresholds)
        return self.processing_time or "processing_time" in of_thresholds

    def has_fault_of(self, *targets: KillTarget) -> bool:
        """Whether one of these is a target of a kill."""
        return any(kill.target in targets for kill in self.kills)

    @property
    def disk_mb(self) -> int | None:
        """Size of the disk with the state of each pipeline, mebibytes; None: no disk of its own."""
        return max((kill.disk_mb for kill in self.kills if kill.target == "disk"), default=None)

    @property
    def publishes_pairs(self) -> bool:
        """Whether every single pair is published."""
        if self.pairs != "auto":
            return self.pairs == "all"
        return 0 < self.load.peak_per_second <= MAX_RATE_OF_PAIRS_PER_SECOND

    @model_validator(mode="after")
    def _searchable(self) -> "Workload":
        if self.search and not isinstance(self.load, Constant):
            raise ValueError("a search needs a load of the shape 'constant'")
        if not self.search and (limits := [x for x in self.thresholds if needs_search(x)]):
            raise ValueError(
                f"the threshold {limits[0]!r} needs a search, as in the workload "
                "sustainable-throughput"
            )
        if self.scaling and not self.search:
            raise ValueError("scaling needs a search")
        if self.sustainable_share and not isinstance(self.load, Constant | Fluctuating):
            raise ValueError(
                "sustainable_share needs a load of the shape 'constant' or 'fluctuating'"
            )
        if self.phases.until_steady and not self.load.IS_PERIODIC:
            raise ValueError(
                f"a warm-up until the stages are steady needs a load that is {', '.join(PERIODIC)}"
            )
        if self.phases.until_steady and self.pipelines_start_s:
            raise ValueError("pipelines that start after the load need a warm_up_s in seconds")
        if self.pipelines_start_s >= self.phases.total_s:
            raise ValueError("pipelines_start_s must be less than the duration of the load")
        return self
