"""Kills, terminates or pauses parts of the stack on this machine, disturbs the network between
pipelines and the broker, fills disks of pipelines and lets their programs throw, as the workload
requires.

Targets come from `stack.json` in the stack's data folder.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from schemas.protocol import Pipeline
from schemas.workload import LASTING, Kill, KillSignal, KillTarget
from services.conductor import ballast
from services.definitions.engines import engine_of
from services.runtime.process_identity import birth_of
from services.runtime.program import pipeline_of, proxied_by, raise_file
from services.runtime.settings import ROOT

SERVICE_OF: dict[KillTarget, str] = {
    "driver": "runner",
    "worker": "runner",
    "broker": "kafka",
    "evaluator": "evaluator",
    "network": "runner",
    "record": "runner",
    "disk": "runner",
}
SIGNALS: dict[KillSignal, signal.Signals] = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "pause": signal.SIGSTOP,
    "cut": signal.SIGUSR1,
    "slow": signal.SIGUSR2,
}
FindProcesses = Callable[[Kill, Path, Sequence[Pipeline]], list[psutil.Process]]


def processes_of(planned: Kill, data: Path, pipelines: Sequence[Pipeline]) -> list[psutil.Process]:
    """The processes that are to be killed, of every pipeline if they are part of a pipeline; of a
    record and of a disk the main process of each pipeline. data: folder of the stack."""
    return list(_processes_of_target(planned, data, pipelines))


def carry_out(planned: Kill, processes: Sequence[psutil.Process]) -> None:
    """Send the signal to those that still exist. What lasts for a time ends even if this process
    ends before."""
    if planned.signal in LASTING:
        pids = " ".join(str(process.pid) for process in processes)
        resume = f"sleep {planned.for_s}; kill -CONT {pids}"
        subprocess.Popen(["/bin/sh", "-c", resume], start_new_session=True)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(SIGNALS[planned.signal])


def plant(planned: Kill, folder: Path, pipelines: Sequence[Pipeline]) -> Callable[[], bool]:
    """Fill the disk of each pipeline, or let its program throw at a record. folder: of the run.
    Returns whether all programs have thrown, or all disks have been full when asked. Raises
    OSError.
    """
    if planned.target == "record":
        files = [raise_file(folder, pipeline.name) for pipeline in pipelines]
        for file in files:
            file.touch()
        return lambda: not any(file.exists() for file in files)
    disks = [folder / pipeline.name for pipeline in pipelines]
    for disk in disks:
        command = [sys.executable, "-m", ballast.__name__, str(disk), str(planned.for_s)]
        subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    full: set[Path] = set()

    def have_been_full() -> bool:
        with contextlib.suppress(OSError):  # the run may have been stopped
            full.update(disk for disk in disks if shutil.disk_usage(disk).free == 0)
        return len(full) == len(disks)

    return have_been_full


def _processes_of_target(
    planned: Kill, data: Path, pipelines: Sequence[Pipeline]
) -> Iterator[psutil.Process]:
    for root in _services(data, SERVICE_OF[planned.target]):
        if planned.target in ("broker", "evaluator"):
            yield root
        elif planned.target == "network":
            yield from _proxies(root, pipelines)
        else:
            for pipeline in pipelines:
                own = _processes_of_pipeline(pipeline, root, planned.target)
                yield from sorted(own, key=lambda each: each.pid)[: planned.most]


def _proxies(root: psutil.Process, pipelines: Sequence[Pipeline]) -> Iterator[psutil.Process]:
    """The proxies between the pipelines and the broker, below the runner."""
    names = {pipeline.name for pipeline in pipelines}
    for process in root.children():
        with contextlib.suppress(psutil.Error):
            if proxied_by(process.cmdline()) in names:
                yield process


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
    """Processes of a pipeline below the runner: its workers (target worker), or its main one."""
    engine = engine_of(pipeline)
    if engine is None:
        return
    looks, is_worker = engine.spec.processes, target == "worker"
    name = looks.workers if is_worker else looks.main
    for process in root.children():
        with contextlib.suppress(psutil.Error):
            if pipeline_of(process.cmdline()) == pipeline.name:
                if not is_worker and not name:
                    yield process
                elif name:
                    yield from _named_below(process, name)


def _named_below(program: psutil.Process, name: str) -> list[psutil.Process]:
    """Processes of that name, without those above others of it: a driver's JVM may be above those
    in which its tasks run."""
    own: list[psutil.Process] = []
    above: set[int] = set()
    for process in program.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == name:
                own.append(process)
                above.update(each.pid for each in process.parents())
    return [process for process in own if process.pid not in above]
