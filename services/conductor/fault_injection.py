"""Kills a part of the stack on this machine, as the workload requires.

Targets come from `stack.json` in the stack's data folder.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from schemas.protocol import Pipeline
from schemas.workload import KillTarget
from services.definitions.engines import engine_of
from services.runtime.process_identity import birth_of
from services.runtime.program import pipeline_of

SERVICE_OF: dict[KillTarget, str] = {
    "driver": "runner",
    "worker": "runner",
    "broker": "kafka",
    "evaluator": "evaluator",
}
FindProcesses = Callable[[KillTarget, Path, Sequence[Pipeline]], list[psutil.Process]]


def processes_of(
    target: KillTarget, data: Path, pipelines: Sequence[Pipeline]
) -> list[psutil.Process]:
    """The processes of the target, for every pipeline if it is part of a pipeline. data: folder of
    the stack."""
    return list(_processes_of_target(target, data, pipelines))


def kill(processes: Sequence[psutil.Process]) -> None:
    """Send SIGKILL to those that still exist."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _processes_of_target(
    target: KillTarget, data: Path, pipelines: Sequence[Pipeline]
) -> Iterator[psutil.Process]:
    for root in _services(data, SERVICE_OF[target]):
        if target in ("broker", "evaluator"):
            yield root
        else:
            for pipeline in pipelines:
                yield from _processes_of_pipeline(pipeline, root, target)


def _services(data: Path, name: str) -> Iterator[psutil.Process]:
    """The running processes of a service, without later ones that reuse a pid."""
    try:
        services = json.loads((data / "stack.json").read_text())["services"]
    except (OSError, ValueError, KeyError):
        return
    for service in services:
        if service["name"] != name:
            continue
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(service["pid"])
            if service["birth"] == birth_of(process.pid):
                yield process


def _processes_of_pipeline(
    pipeline: Pipeline, root: psutil.Process, target: KillTarget
) -> Iterator[psutil.Process]:
    """Processes of a pipeline below the runner: its main one (driver), or its workers (worker)."""
    engine = engine_of(pipeline)
    if engine is None:
        return
    looks = engine.spec.processes
    name = looks.main if target == "driver" else looks.workers
    for process in root.children():
        with contextlib.suppress(psutil.Error):
            if pipeline_of(process.cmdline()) == pipeline.name:
                if target == "driver" and not name:
                    yield process
                elif name:
                    yield from _named_below(process, name)


def _named_below(program: psutil.Process, name: str) -> Iterator[psutil.Process]:
    for process in program.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == name:
                yield process
