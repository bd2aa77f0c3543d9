"""Python implementation of the contract of engine programs (schemas/engine.py), and how to find
the processes of a pipeline, and its proxy, by their arguments.
"""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.engine import EnginePlan, UndecodableLine

PROXY_MODULE = "services.runner.proxy"
_PLAN = re.compile(r"/runs/[a-z0-9][a-z0-9-]*/([a-z0-9][a-z0-9-]*)\.plan\.json$")


def plan_file(folder: Path, pipeline: str) -> Path:
    """Path of a pipeline's plan in the folder of a run."""
    return folder / f"{pipeline}.plan.json"


def raise_file(folder: Path, pipeline: str) -> Path:
    """Path of the file in the folder of a run that lets a pipeline's program throw once."""
    return folder / f"{pipeline}.raise"


def pipeline_of(command_line: Sequence[str]) -> str:
    """The pipeline whose plan is an argument of a command line; empty if there is none."""
    result = (_PLAN.search(argument) for argument in command_line)
    return next((match[1] for match in result if match), "")


def proxied_by(command_line: Sequence[str]) -> str:
    """The pipeline before whose broker a process of this command line is the proxy; empty if it is
    none."""
    return command_line[-1] if PROXY_MODULE in command_line else ""


def read_plan() -> EnginePlan:
    """The plan named by the last argument. Exits with one line if there is none."""
    try:
        return EnginePlan.model_validate_json(Path(sys.argv[-1]).read_bytes())
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[-1]} is not a pipeline plan: {' '.join(str(error).split())[:600]}")


class Voice:
    """Writes contract lines to standard output. All other output of this process and its children
    to standard output is redirected to standard error."""

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._lock = threading.Lock()

    def ready(self, **detail: Any) -> None:
        """Report that the pipeline reads its inputs."""
        self._say(event="ready", detail=detail)

    def progress(self, **fields: Any) -> None:
        """Report the progress of one stage (schemas.engine.ProgressLine)."""
        self._say(event="progress", **fields)

    def tasks(self, by_delay: Mapping[int, int]) -> None:
        """Report the number of ended tasks by scheduler delay, milliseconds."""
        self._say(event="tasks", delays_ms=[*by_delay], tasks=[*by_delay.values()])

    def undecodable(self, line: UndecodableLine) -> None:
        """Report a value that cannot be decoded."""
        self._write(line.model_dump_json())

    def failed(self, stage: str, reason: str) -> None:
        """Report that the pipeline cannot continue."""
        self._say(event="failed", stage=stage, reason=reason)

    def _say(self, **fields: Any) -> None:
        self._write(json.dumps(fields))

    def _write(self, line: str) -> None:
        with self._lock:
            print(line, file=self._lines, flush=True)


def end_with_parent(before: Callable[[], None] = lambda: None) -> None:
    """End this process when its standard input, held open by the parent, is closed.

    before: called first, in a separate thread; this process ends even if it fails.
    """

    def wait_for_the_end() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        try:
            before()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, name="parent", daemon=True).start()
