"""Kills a part of the stack on this machine, on purpose, as the workload says.

Which processes there are says the deployment in `stack.json` of the stack's data folder.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from schemas.workload import KillTarget
from services.runtime.births import birth_of

SERVICE_OF: dict[KillTarget, str] = {
    "driver": "runner",
    "worker": "runner",
    "broker": "kafka",
    "evaluator": "evaluator",
}


def kill_part(target: KillTarget, data: Path, pipelines: Sequence[str]) -> list[int]:
    """Kill (SIGKILL) the target, of every one of the pipelines where it is a pipeline's.

    data: folder of the stack. Returns the process ids; none where there is no such process.
    """
    killed = []
    for process in list(_victims(target, data, pipelines)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed.append(process.pid)
    return killed


def _victims(target: KillTarget, data: Path, pipelines: Sequence[str]) -> Iterator[psutil.Process]:
    for root in _services(data, SERVICE_OF[target]):
        if target in ("broker", "evaluator"):
            yield root
        else:
            for driver in _drivers(root, pipelines):
                yield from [driver] if target == "driver" else _java_below(driver)


def _services(data: Path, name: str) -> Iterator[psutil.Process]:
    """Processes of a service that are those which were started, not others with their ids."""
    try:
        services = json.loads((data / "stack.json").read_text())["services"]
    except (OSError, ValueError, KeyError):
        return
    for service in services:
        if service["name"] != name:
            continue
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(service["pid"])
            if service.get("birth") in (None, birth_of(process.pid)):
                yield process


def _drivers(root: psutil.Process, pipelines: Sequence[str]) -> Iterator[psutil.Process]:
    for process in root.children():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            named = (
                command[command.index("--pipeline") + 1 :][:1] if "--pipeline" in command else []
            )
            if named and named[0] in pipelines:
                yield process


def _java_below(driver: psutil.Process) -> Iterator[psutil.Process]:
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == "java":
                yield process
