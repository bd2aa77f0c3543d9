"""What a run is, for all services: its request and its plan, and the names in its results.

Commands carry them (schemas/commands.py); the answers are events (schemas/events.py).
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from schemas.domain import DomainSpec
from schemas.engine import Topology
from schemas.model import Model, Name, Stage, parse_stages
from schemas.pipeline import Pipeline
from schemas.search import Scaled
from schemas.suite import SuiteRun
from schemas.threshold import DEFINITIONS
from schemas.workload import (
    Content,
    Faults,
    Judgement,
    Phases,
    Validity,
    Workload,
)

__all__ = [
    "DEFINITIONS",
    "Content",
    "Faults",
    "Judgement",
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
OF_EVERY_STAGE: Final = ("latest", "mean", "event_time")
VERDICTS = ("exact", "wrong", "missing", "late", "duplicate", "unexpected")
FAILED_VERDICTS = VERDICTS[1:]
MACHINE = "machine"  # service name of the whole machine in results.resources
OTHER_PROCESSES: Final = "others"  # name of the processes of a pipeline that used least
COLLECTOR = "collector"  # always sees itself; in a container it sees no other part of the stack
SAMPLER: Final = "sampler"  # the collector's part in the container of the pipelines
# A collector that samples one of these samples the whole stack. In a container it samples itself or
# the pipelines, so the rest of the machine's use is not that of other programs.
SEEN_WITH_THE_STACK: Final = frozenset(
    {"kafka", "broker", "generator", "evaluator", "conductor", "store"}
)
# What a pipeline's program says when it is ready: processes of it do not run where it does.
RUNS_ELSEWHERE: Final = "runs_elsewhere"

SOCKET: Final = "socket"  # the engine of a system that is fed over the network, not by Kafka
LATEST_MS: Final = 4_102_444_800_000  # of a load, epoch milliseconds: the year 2100
CITATION: Final = "citation"
Profile = Literal["", "citation"]
WARMING: Final = "-warm"  # ends the id of a run that warms up the pipelines for a search step


def largest(amounts: Mapping[str, float], most: int) -> dict[str, float]:
    """Amounts of processes by name, largest first. Those beyond `most` names are together
    OTHER_PROCESSES, which is last."""
    named = {name: amount for name, amount in amounts.items() if name != OTHER_PROCESSES}
    names = sorted(named, key=lambda name: (-named[name], name))
    result = {name: named[name] for name in names[:most]}
    rest = [amounts[name] for name in amounts if name not in result]
    return result | ({OTHER_PROCESSES: sum(rest)} if rest else {})


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
                    "pipelines": (pipeline,),
                    "domain": _with_topics_of(self.domain, pipeline.name),
                    "interleaved": None,
                }
            )
            for pipeline in self.pipelines
        )

    @property
    def served(self) -> tuple[object, ...]:
        """What two runs must share to use the same running pipelines: pipelines, stages, domain
        with windows and topics, record format, how their JVMs compile and collect garbage, and
        whether there is a proxy before the broker."""
        published = tuple(self.stages_of(pipeline) for pipeline in self.pipelines)
        form = self.workload.content.format
        jvms = self.workload.has_long_warm_up, self.profile
        has_proxy = self.workload.has_proxy
        return self.pipelines, published, self.domains, form, jvms, has_proxy

    @property
    def socket_pipeline(self) -> Pipeline | None:
        """The pipeline that is a system behind sockets; it is the only one of its run."""
        return next((each for each in self.pipelines if each.engine == SOCKET), None)

    def counts_losses(self, stage: Stage) -> bool:
        """Whether the outputs of a stage have verdicts for the whole load, so that what was lost
        can be added up: if records are sent over the network, of a stage without windows."""
        chain = (*self.domain.chain(stage), self.domain.stage(stage))
        return self.workload.has_gateway and not any(each.is_windowed for each in chain)

    @property
    def has_input_offsets(self) -> bool:
        """Whether the evaluator needs the offset of each input, to look up a time of it."""
        return self.workload.has_proxy or self.socket_pipeline is not None

    @property
    def has_gateway(self) -> bool:
        """Whether records arrive over the network, through the gateway."""
        return self.workload.has_gateway and self.socket_pipeline is None

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
        names = {pipeline.name for pipeline in self.pipelines}
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
        each.model_copy(update={"topic": f"{each.topic}.{whose}"}) for each in domain.inputs
    )
    return DomainSpec.model_validate(domain.model_dump() | {"inputs": inputs})


class RunPlan(Model):
    """A prepared run. start_offsets: per topic, the end offset of each partition, in order,
    taken before anything of the run was written; readers begin there. start_timeout_s: how long
    the conductor waits until all pipelines are ready. warm: they were kept from the run before."""

    request: RunRequest
    start_offsets: dict[str, tuple[int, ...]]
    start_timeout_s: float = 0
    warm: bool = False


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
