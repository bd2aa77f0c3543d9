"""Requests of runs, for the console and for suites, with the environment of the run."""

import importlib.metadata
import os
import platform
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.domain import DomainSpec
from schemas.frame import MAX_STREAMS
from schemas.load import Constant
from schemas.protocol import SOCKET, Interleaving, Pipeline, RunRequest, Stage, Workload
from schemas.suite import SuiteRun
from schemas.validation_errors import DefinitionError, first_mistake
from services.definitions.engines import load_engine, load_engines
from services.definitions.pipelines import in_workload, rewired, stages_published, topology_of
from services.definitions.workloads import check_thresholds
from services.runtime.limits import limits, machine
from services.runtime.settings import ROOT
from services.runtime.version import revision

LEAST_BLOCK_S = 6
PACKAGES = ("faust-streaming", "confluent-kafka", "fastavro", "pyruhvro", "chdb-core")


def new_request(
    workload: Workload,
    pipelines: Sequence[Pipeline],
    stages: tuple[Stage, ...],
    domain: DomainSpec,
    suite: SuiteRun | None = None,
    *,
    interleave: bool = False,
) -> RunRequest:
    """The request of a new run: a run id that sorts by time, a seed, and the environment.

    stages: empty for those of the workload, or else all of the domain. interleave: measure its two
    pipelines alternately. Raises DefinitionError if the stages or the workload's windows are not in
    the domain, if a pipeline can publish none of the stages, or if the run cannot be interleaved.
    """
    stages = stages or workload.stages or domain.stage_names
    try:
        resolved = domain.resolved(workload.windows)
    except ValidationError as error:
        raise DefinitionError(f"workload {workload.name}: {first_mistake(error)}.") from error
    except ValueError as error:
        raise DefinitionError(f"workload {workload.name}: {error}.") from error
    pipelines = [in_workload(pipeline, workload) for pipeline in pipelines]
    for pipeline in pipelines:
        try:
            rewired(resolved, pipeline.reads)
        except ValidationError as error:
            raise DefinitionError(f"{pipeline.name}: reads: {first_mistake(error)}.") from error
        except ValueError as error:
            raise DefinitionError(f"{pipeline.name}: {error}.") from error
    _check_kills(workload, pipelines)
    _check_sockets(workload, pipelines, resolved, interleave=interleave)
    published = {pipeline.name: _published(pipeline, resolved, stages) for pipeline in pipelines}
    check_thresholds(workload, published)
    if workload.search is not None and len(pipelines) > 1:
        raise DefinitionError("A search for the sustainable rate needs one pipeline: --pipeline A.")
    return RunRequest(
        run_id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}",
        workload=workload,
        pipelines=tuple(pipelines),
        stages=stages,
        seed=secrets.randbelow(2**31),
        environment=environment(),
        suite=suite,
        domain=resolved,
        published=published,
        topologies={pipeline.name: topology_of(pipeline) for pipeline in pipelines},
        interleaved=_turns(workload, pipelines, resolved, stages) if interleave else None,
    )


def _check_kills(workload: Workload, pipelines: Sequence[Pipeline]) -> None:
    """Raise DefinitionError if a fault is after the measure phase, if workers are to be killed and
    no pipeline has any, or if a fault is not one of a pipeline's engine."""
    measure_s = workload.phases.measure_s
    late = next((kill for kill in workload.kills if kill.at_s >= measure_s), None)
    if late is not None:
        raise DefinitionError(
            f"workload {workload.name}: the {late.said} is at {late.at_s} s; the measured phase "
            f"ends at {measure_s} s."
        )
    for pipeline in pipelines:
        spec = load_engine(pipeline.engine).spec
        if workload.has_fault_of("record") and not spec.can_raise(pipeline):
            raise DefinitionError(f"{pipeline.name} cannot be made to throw at a record.")
        if workload.has_fault_of("disk") and not spec.processes.stores:
            raise DefinitionError(f"{pipeline.name} has no state on a disk that could be filled.")
    if not workload.has_fault_of("worker"):
        return
    if not any(load_engine(pipeline.engine).spec.has_workers(pipeline) for pipeline in pipelines):
        names = ", ".join(pipeline.name for pipeline in pipelines)
        raise DefinitionError(f"No worker to kill: {names} runs in one process; kill its driver.")


def _check_sockets(
    workload: Workload, pipelines: Sequence[Pipeline], domain: DomainSpec, *, interleave: bool
) -> None:
    """Raise DefinitionError if a system behind sockets cannot be measured so."""
    name = next((each.name for each in pipelines if each.engine == SOCKET), None)
    if name is None:
        return
    needs = {
        "a transport: --transport tcp, udp or zeromq": not workload.has_gateway,
        "to be the only pipeline of its run: --pipeline " + name: len(pipelines) > 1 or interleave,
        "a workload without processing_time and faults of the network": workload.has_proxy,
        f"a domain with at most {MAX_STREAMS} stages": len(domain.stages) > MAX_STREAMS,
    }
    for needed, is_missing in needs.items():
        if is_missing:
            raise DefinitionError(f"{name} is a system behind sockets and needs {needed}.")


def _turns(
    workload: Workload,
    pipelines: Sequence[Pipeline],
    domain: DomainSpec,
    stages: tuple[Stage, ...],
) -> Interleaving:
    """Blocks in which every stage publishes: twice the longest window. Only the middle of a block
    counts, where no window overlaps the block before or waits for the one after."""
    refused = {
        "two pipelines: --pipeline A,B": len(pipelines) != 2,
        "a load of the shape 'constant'": not isinstance(workload.load, Constant),
        "a workload without a search": workload.search is not None,
        "a workload without kills": bool(workload.kills),
        "pipelines that start before the load": workload.pipelines_start_s > 0,
        "a workload without late records": workload.faults.late > 0,
        "records sent directly to Kafka": workload.has_gateway,
        "pipelines that Tidegauge starts": any(
            pipeline.engine == "external" and not pipeline.settings.get("command")
            for pipeline in pipelines
        ),
    }
    for needed, is_missing in refused.items():
        if is_missing:
            raise DefinitionError(f"--interleave needs {needed}.")
    second_ms = workload.content.second_ms
    windows = [each.window for each in map(domain.stage, stages) if each.window is not None]
    closed = [
        each.window
        for each in map(domain.stage, stages)
        if each.window is not None and each.complete is None
    ]
    longest_s = -(-max((window.size_s for window in windows), default=0) * second_ms // 1000)
    edge_s = 1 + -(-max((each.size_s for each in closed), default=0) * second_ms // 1000)
    block_s = max(LEAST_BLOCK_S, 2 * longest_s, 4 * edge_s)
    while block_s * 1000 % second_ms:  # a block starts on a second of event time
        block_s += 1
    first, second = (pipeline.name for pipeline in pipelines)
    order = (first, second, second, first)
    first_s = workload.phases.warm_up_s % (len(order) * block_s)
    return Interleaving(block_s=block_s, first_s=first_s, edge_s=edge_s, order=order)


def not_published(request: RunRequest) -> tuple[str, ...]:
    """The requested stages that a pipeline cannot publish, with the reason, in sentences."""
    result = [
        (pipeline.name, stages_published(pipeline, request.domain, request.stages)[1])
        for pipeline in request.pipelines
    ]
    return tuple(
        f"{name} does not publish {', '.join(stages)}: {reason}."
        for name, against in result
        for reason, stages in _by_reason(against).items()
    )


def _by_reason(against: dict[Stage, str]) -> dict[str, list[Stage]]:
    result: dict[str, list[Stage]] = {}
    for stage, reason in against.items():
        result.setdefault(reason, []).append(stage)
    return result


def _published(
    pipeline: Pipeline, domain: DomainSpec, stages: tuple[Stage, ...]
) -> tuple[Stage, ...]:
    published, against = stages_published(pipeline, domain, stages)
    if published:
        return published
    if not against:
        raise DefinitionError(
            f"{pipeline.name} publishes none of the stages {', '.join(stages)}; it has: "
            f"{', '.join(pipeline.stages)}."
        )
    stage, reason = next(iter(against.items()))
    raise DefinitionError(
        f"{pipeline.name} can publish none of the stages {', '.join(stages)}; {stage}: {reason}."
    )


def environment() -> dict[str, Any]:
    """Versions, and the machine: kernel, and the cores and the memory in bytes that may be used. If
    these are less than the host's, also the host's."""
    allowed, whole = limits(), machine()
    result = {
        "tidegauge": revision(),
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "packages": dict(_versions()),
        "broker": _broker_version(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": allowed.cores,
        "memory_bytes": allowed.memory_bytes,
    }
    if (allowed.cores, allowed.memory_bytes) != (whole.cores, whole.memory_bytes):
        result |= {"host_cores": whole.cores, "host_memory_bytes": whole.memory_bytes}
    return result


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of installed packages: the console's container lacks those of other services."""
    of_engines = (name for each in load_engines().values() for name in each.spec.install.versions)
    for name in (*of_engines, *PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def _broker_version() -> str:
    folder = Path(os.environ.get("TIDEGAUGE_JARS") or ROOT / ".jars")
    jars = sorted((folder / "broker").glob("kafka_*.jar"))
    return jars[0].stem if jars else "unknown"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if text and done.returncode == 0 else ""
