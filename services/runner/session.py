"""State of the pipelines of one run.

A program that failed at its start for lack of processor time is started again. Engines give their
own processes a fixed time to answer, such as the ten seconds in which a worker must connect. On a
busy machine a start exceeds it, although nothing is broken.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from schemas import catalogue
from schemas.engine import EnginePlan, SocketPlan
from schemas.protocol import SOCKET, Pipeline, RunPlan, RunRequest
from services.definitions.engines import Engine
from services.definitions.pipelines import rewired
from services.runner.processes import PipelineProcess
from services.runner.proxy.process import FetchProxy
from services.runner.small_disk import SmallDisk
from services.runtime.kafka import frame_tag
from services.runtime.program import raise_file
from services.runtime.settings import ServiceSettings

PRESSURE = Path("/proc/pressure/cpu")
MOST_TRIES = 5
MOST_PROXY_ENDS = 20
# Share of the time of a start in which some task of the machine waited for a core. A program that
# waits for something else, such as a broker that does not answer, leaves the cores idle.
SHORT_SHARE = 0.2
# How engines and their clients say that something did not answer in time.
TIMED_OUT = re.compile(
    r"time[ds]?[ _-]?out|fail\w* to connect back|deadline exceeded|session (has )?expired"
    r"|connection ?loss|leader ?not ?found|node ?not ?ready|no ?resource ?available"
    r"|no recent heartbeats?",
    re.IGNORECASE,
)
# waiting: not started; starting: not ready; down: killed and restarting; ended: failed, which was
# published.
State = Literal["waiting", "starting", "ready", "down", "ended"]


@dataclass(frozen=True)
class Waited:
    """Seconds of a steady clock, and seconds until then in which some task waited for a core."""

    at_s: float
    waited_s: float

    def share_until(self, later: "Waited") -> float:
        """Share of the time since then in which some task waited for a core."""
        passed_s = later.at_s - self.at_s
        return (later.waited_s - self.waited_s) / passed_s if passed_s > 0 else 0.0


def load_per_core() -> float:
    """Runnable tasks of the last minute for each core of the machine."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def waited(pressure: Path = PRESSURE, load_per_core: Callable[[], float] = load_per_core) -> Waited:
    """Now. If the kernel does not tell how long tasks waited, as in some containers, all time
    counts while there are more runnable tasks than cores."""
    now_s = time.monotonic()
    try:
        total_us = int(pressure.read_text().partition("total=")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return Waited(now_s, now_s if load_per_core() > 1 else 0.0)
    return Waited(now_s, total_us / 1e6)


def lacked_cpu(reason: str, began: Waited, ended: Waited) -> bool:
    """Whether a start that failed for this reason may succeed if it is tried again: something did
    not answer in time, and tasks waited for a core meanwhile."""
    return bool(TIMED_OUT.search(reason)) and began.share_until(ended) >= SHORT_SHARE


@dataclass
class Member:
    """One pipeline of a run. process: None while it waits and after it ended. version: of its
    engine, empty if unknown. detail: from the program's ready line. refused: number of undecodable
    values that it has told. tries: starts before the load, with the processor time that the machine
    lacked when the last one `began`. proxy: between its clients and the broker, if the run needs
    it, and how often it has ended. disk: of its files, if the run fills it, and how often
    the program ended while it was full. failure: that it has told before it ends and is
    restarted."""

    pipeline: Pipeline
    engine: Engine
    state: State = "waiting"
    process: PipelineProcess | None = None
    restarts: int = 0
    version: str = ""
    tries: int = 0
    began: Waited | None = None
    detail: dict[str, JsonValue] = field(default_factory=dict)
    refused: int = 0
    proxy: FetchProxy | None = None
    proxy_ends: int = 0
    disk: SmallDisk | None = None
    excused: int = 0
    failure: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether it is starting and other starts must wait for it."""
        return self.state == "starting" and self.engine.spec.processes.starts_slowly

    def with_version(self, detail: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Detail of a ready line with the engine's version, unless the program has given one."""
        if not self.version or any(name.endswith("version") for name in detail):
            return detail
        return detail | {"version": self.version}


@dataclass
class RunPipelines:
    """The pipelines of a run.

    plan: of the run being served. folder: its files, named after the run that started them
    (`home`). start_ms: start of the load in epoch milliseconds, or None while unknown.
    start_until_s: until when pipelines that fail at their start may be started again, by the
    agent's clock; 0 once the load was started.
    """

    plan: RunPlan
    folder: Path
    members: list[Member]
    start_ms: int | None = None
    start_until_s: float = 0
    home: str = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.run_id

    @property
    def run_id(self) -> str:
        """The run being served."""
        return self.plan.request.run_id

    @property
    def processes(self) -> Iterator[PipelineProcess]:
        """Processes that were started and not yet reaped."""
        return (each.process for each in self.members if each.process is not None)

    def can_serve(self, plan: RunPlan) -> bool:
        """Whether all pipelines run and match another run's plan."""
        runs = all(
            member.state == "ready" and member.process is not None for member in self.members
        )
        alive = all(process.code is None for process in self.processes)
        is_same = self.plan.request.served == plan.request.served
        # A system behind sockets knows the tag of one run.
        return runs and alive and is_same and plan.request.socket_pipeline is None


def in_start_order(members: list[Member]) -> list[Member]:
    """Members in start order: first those of engines marked `starts_first`."""

    def is_later(member: Member) -> bool:
        ability = member.engine.spec.ability_of(member.pipeline)
        return ability is None or not ability.starts_first

    return sorted(members, key=is_later)


def engine_plan(
    plan: RunPlan, pipeline: Pipeline, folder: Path, settings: ServiceSettings, bootstrap: str
) -> EnginePlan:
    """The plan passed to the program of a pipeline. bootstrap: the Kafka servers for its
    clients."""
    request = plan.request
    domain, raises = request.domain_of(pipeline.name), request.workload.has_fault_of("record")
    outputs = {
        stage: catalogue.output_topic(pipeline.name, stage) for stage in request.stages_of(pipeline)
    }
    return EnginePlan(
        run_id=request.run_id,
        pipeline=pipeline,
        domain=rewired(domain, pipeline.reads),
        outputs=outputs,
        start_offsets={topic: plan.start_offsets[topic] for topic in domain.topics},
        output_offsets={
            topic: plan.start_offsets[topic]
            for topic in outputs.values()
            if topic in plan.start_offsets
        },
        bootstrap=bootstrap,
        properties=settings.kafka_properties,
        wire_format=request.workload.content.format,
        group=catalogue.engine_group(pipeline.name, request.run_id),
        warm_up_s=request.workload.least_warm_up_s,
        deadline_ms=request.workload.judgement.deadline_ms,
        folder=str(folder),
        raise_file=str(raise_file(folder.parent, pipeline.name)) if raises else "",
        socket=socket_plan(request, pipeline, settings),
    )


def socket_plan(
    request: RunRequest, pipeline: Pipeline, settings: ServiceSettings
) -> SocketPlan | None:
    """How a system behind sockets is fed; None for any other pipeline."""
    if pipeline.engine != SOCKET:
        return None
    transport, answers = request.workload.transport, pipeline.settings.get("answers")
    return SocketPlan.model_validate(
        {
            "transport": transport,
            "answers": transport if answers in (None, "same") else answers,
            "host": settings.host,
            "system_port": settings.port("system_frames"),
            "results_port": settings.port("result_frames"),
            "tag": frame_tag(settings, request.run_id).hex(),
        }
    )
