"""What a run is, for all services: its request and its plan, and the names in its results.

The commands that carry them are in schemas/commands.py.
"""

from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from schemas.domain import DomainSpec
from schemas.engine import Topology
from schemas.model import Model, Name, Stage, parse_stages
from schemas.pipeline import Pipeline
from schemas.scaling import Scaled
from schemas.suite import SuiteRun
from schemas.workload import (
    Content,
    Faults,
    Judgement,
    Load,
    Phases,
    Validity,
    Workload,
)

__all__ = [
    "Content",
    "Faults",
    "Judgement",
    "Load",
    "Model",
    "Phases",
    "Pipeline",
    "Stage",
    "Validity",
    "Workload",
    "parse_stages",
]

PHASES = ("warm_up", "measure", "cool_down")
# Dimension of `results_slices` by which an interleaved run has its measured latencies (`latest`):
# value is the second in which the latest input was appended (epoch).
INPUT_SECOND: Final = "input_second"
DEFINITIONS = ("latest", "mean", "event_time")
VERDICTS = ("exact", "wrong", "missing", "late", "duplicate", "unexpected")
FAILED_VERDICTS = VERDICTS[1:]
MACHINE = "machine"  # service name of the whole machine in results.resources
COLLECTOR = "collector"  # always sees itself; in a container it sees no other part of the stack

# Events on results.lifecycle.
SERVICE_STARTED = "service_started"
SERVICE_STOPPED = "service_stopped"
RUN_REQUESTED = "run_requested"  # detail: the RunRequest and the environment
# A watch begins another run, by default an hour of its topics. detail: schemas.watch.WatchRun
WATCH_BEGUN = "watch_begun"
# A problem of a watch to report; detail: {"kind", "watch", "invalid", …}, kind one of
# topic_deleted, topic_appeared, partition_added, retention_overtook, truncated, undecodable,
# sampled, not_repeatable, not_readable, group_not_read, ended; invalid: why its run becomes
# invalid, or empty
WATCH_TROUBLE = "watch_trouble"
RUN_REFUSED = "run_refused"  # detail: {"reason", "going_on"}
PREPARING = "preparing"  # detail: the RunPlan
# from generator, evaluator, collector, and per pipeline from the runner; if several instances of
# a service share the work, detail: {"service", "instance_index", "instance_count"}; from the
# collector also {"machine_cores"}
READY = "ready"
# from the conductor: all are ready, and every pipeline has published output of every stage
FIRST_OUTPUTS = "first_outputs"
# phase: search (of a run with a search, whose steps are separate runs), prepare, warm_up, measure,
# cool_down, drain or conclude; detail of those of the load: {"start_ms", "end_ms"} as scheduled
PHASE_STARTED = "phase_started"
LOAD_FINISHED = "load_finished"  # detail: LoadFinished
# from the evaluator before it is ready; detail: {"offset_ms", "records"}: the minimum of the
# broker's append time minus the generator's send time over the probe records
CLOCK_OFFSET = "clock_offset"
# from an evaluator that resumes a run after the process before it was killed
EVALUATION_RESUMED = "evaluation_resumed"
# every 10 s of a run from the evaluator; detail: {"lag_ms", "largest_lag_ms", "cells"}
EVALUATING = "evaluating"
# every few seconds of the load from the conductor; detail: {"steady": true, false or null if
# unknown, "moving": what still changes, a sentence each, "still": the same as
# `p50 of join still falls, 14 → 9 ms`}
STEADINESS = "steadiness"
DRAINED = "drained"  # detail: Drained
# from the gateway, when all frames of a load have arrived or none arrive any more; detail: numbers
# sent, received, appended, lost, duplicate and refused, and transit times
WAY_IN = "way_in"
STOPPED = "stopped"  # per pipeline
SUITE = "suite"  # from the conductor at each change of its suite's state; detail: SuitePosition
# A pipeline failed at its start for lack of processor time, and is started again before the load.
# detail: {"reason", "try"}: the try that begins
START_AGAIN = "start_again"
# A pipeline's driver was killed and is being restarted, and its queries run again; the time between
# them is the outage. detail of the first: {"reason", "restart"}
PIPELINE_DOWN = "pipeline_down"
PIPELINE_UP = "pipeline_up"
# A process of the deployment has died and is being restarted, and serves again; of no run. detail:
# {"part", "reason", "restart"} (0: no restart is left, the deployment ends) and
# {"part", "outage_s"}
PART_DOWN = "part_down"
PART_UP = "part_up"
# From the store, of no run: retention removed records of a topic before they were projected, so no
# table has them. detail: {"topic", "partition", "records", "first_offset", "next_offset"}
RECORDS_LOST = "records_lost"
# The conductor killed a process deliberately; detail: {"target", "pids"}
KILLED = "killed"
FAILED = "failed"  # a service cannot continue the run; detail: {"reason"}
CONCLUDED = "concluded"  # detail: {"valid", "invalid_reasons"}; of a watch also "ended"


LATEST_MS: Final = 4_102_444_800_000  # of a load, epoch milliseconds: the year 2100
CITATION: Final = "citation"
Profile = Literal["", "citation"]


def probe_run_id(run_id: str) -> str:
    """Run id of the probe records that test all parts while a run is prepared."""
    return f"{run_id}-probe"


class Interleaving(Model):
    """Pipelines measured alternately: the load goes to one of them for a block of block_s seconds,
    then to the next of `order`, repeatedly. A block begins first_s after the start of the load, so
    that the measured phase begins with one. edge_s: excluded from comparison at both ends of a
    block."""

    block_s: int = Field(ge=1, le=86_400)
    first_s: int = Field(0, ge=0, le=86_400)
    edge_s: int = Field(1, ge=0, le=3_600)
    order: tuple[Name, ...] = Field(min_length=2, max_length=16)

    def turn(self, second: int) -> Name:
        """The pipeline whose turn it is in a second of the load."""
        return self.order[(second - self.first_s) // self.block_s % len(self.order)]


WARMING: Final = "-warm"  # ends the id of a run that warms up the pipelines for a search step


def floor_run_id(run_id: str) -> str:
    """Run id of the floor measured before a run."""
    return f"{run_id}-floor"


class RunRequest(Model):
    """Everything that defines a run, so that it can be read years later.

    step_of: the run whose search this one is a step of, or empty. domain: with the windows of the
    workload. published: by pipeline, its published stages, in order; topologies: from where its
    stages read. interleaved: the pipelines are measured alternately, each on its own input topics.
    scaled: its part of a series with increasing numbers of workers. profile: `citation` is for
    published figures: JVMs run without options that save time.
    """

    run_id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,80}$")
    workload: Workload
    pipelines: tuple[Pipeline, ...] = Field(min_length=1, max_length=8)
    stages: tuple[Stage, ...] = Field(min_length=1)
    seed: int = 0
    environment: dict[str, Any] = Field(default_factory=dict)
    suite: SuiteRun | None = None
    step_of: str = ""
    domain: DomainSpec
    published: dict[str, tuple[Stage, ...]] = Field(default_factory=dict)
    topologies: dict[str, Topology] = Field(default_factory=dict)
    interleaved: Interleaving | None = None
    scaled: Scaled | None = None
    profile: Profile = ""

    @property
    def shares(self) -> "tuple[RunRequest, ...]":
        """The requests seen by readers of the same input, with their input topics: one, or one for
        each pipeline if they are interleaved."""
        partitions = self.workload.partitions
        if partitions is not None:
            own = {
                "domain": _with_topics_of(self.domain, f"{partitions}-partitions"),
                "workload": self.workload.model_copy(update={"partitions": None}),
            }
            return self.model_copy(update=own).shares
        if self.interleaved is None:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "pipelines": (one,),
                    "domain": _with_topics_of(self.domain, one.name),
                    "interleaved": None,
                }
            )
            for one in self.pipelines
        )

    @property
    def served(self) -> tuple[object, ...]:
        """What two runs must share to use the same running pipelines: pipelines, stages, domain
        with windows and topics, record format, and how their JVMs compile and collect garbage."""
        published = tuple(self.stages_of(pipeline) for pipeline in self.pipelines)
        form = self.workload.content.format
        jvms = self.workload.has_long_warm_up, self.profile
        return self.pipelines, published, self.domains, form, jvms

    @property
    def domains(self) -> tuple[DomainSpec, ...]:
        """The domain with the input topics of each share."""
        return tuple(share.domain for share in self.shares)

    @property
    def input_topics(self) -> tuple[str, ...]:
        """Every input topic of the run."""
        return tuple(topic for domain in self.domains for topic in domain.topics)

    def domain_of(self, pipeline: str) -> DomainSpec:
        """The domain with the input topics that a pipeline of the run reads."""
        return next(
            share.domain
            for share in self.shares
            if any(each.name == pipeline for each in share.pipelines)
        )

    @model_validator(mode="after")
    def _turns_are_of_its_pipelines(self) -> "RunRequest":
        names = {one.name for one in self.pipelines}
        if self.interleaved is not None and set(self.interleaved.order) != names:
            raise ValueError("interleaved must name exactly the pipelines of the run")
        return self

    def stages_of(self, pipeline: Pipeline) -> tuple[Stage, ...]:
        """The stages that a pipeline publishes in this run, in order."""
        asked = self.stages
        if pipeline.stages:
            asked = tuple(stage for stage in self.stages if stage in pipeline.stages)
        return self.published.get(pipeline.name, asked)


def _with_topics_of(domain: DomainSpec, whose: str) -> DomainSpec:
    inputs = tuple(
        one.model_copy(update={"topic": f"{one.topic}.{whose}"}) for one in domain.inputs
    )
    return DomainSpec.model_validate(domain.model_dump() | {"inputs": inputs})


class RunPlan(Model):
    """A prepared run. start_offsets: per topic, the end offset of each partition, in order,
    taken before anything of the run was written; readers begin there. start_timeout_s: how long
    the conductor waits until all pipelines are ready."""

    request: RunRequest
    start_offsets: dict[str, tuple[int, ...]]
    start_timeout_s: float = 0


class PhasePlan(Model):
    """The times of a load. load_start_ms: epoch milliseconds of the first scheduled record, a whole
    second, so that every second of event time is complete."""

    load_start_ms: int = Field(multiple_of=1000, ge=0, le=LATEST_MS)
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
    """Detail of `load_finished`: end_offsets per input topic and partition.

    One per generator: instance `instance_index` of `instance_count` reports its share, so counts
    are summed, and of the end offsets the highest are used. faults: records passed to the client by
    kind of fault (schemas/faults.py); second copies of duplicates are not in the other counts.
    messages: information about this load for users, in sentences.
    """

    intended: int
    acknowledged: int
    failed: int
    end_offsets: dict[str, tuple[int, ...]]
    instance_index: int = 0
    instance_count: int = 1
    faults: dict[str, int] = Field(default_factory=dict)
    messages: tuple[str, ...] = ()


class Drained(Model):
    """Detail of `drained`: verdict totals of the measure phase, by pipeline and stage.

    One per evaluator: instance `instance_index` of `instance_count` reports its share of the
    partitions, so totals are summed. came_forgotten: outputs that arrived after their inputs were
    evicted; their latencies are unknown.
    """

    verdicts: dict[str, dict[str, dict[str, int]]]
    came_forgotten: int = Field(0, ge=0)
    instance_index: int = 0
    instance_count: int = 1

    @field_validator("verdicts")
    @classmethod
    def _all_are_counted(
        cls, verdicts: dict[str, dict[str, dict[str, int]]]
    ) -> dict[str, dict[str, dict[str, int]]]:
        for stages in verdicts.values():
            for counts in stages.values():
                if set(counts) != set(VERDICTS):
                    raise ValueError(f"verdicts must be {', '.join(VERDICTS)}")
        return verdicts
