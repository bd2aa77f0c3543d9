"""What every program that runs one pipeline of one run is started with, by the agent."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from schemas.model import Stage
from schemas.pipeline import Pipeline
from schemas.protocol import RunPlan

EXIT_STOPPED = 0
EXIT_REPORTED = 3  # a query failed and the program has published FAILED itself


def read_arguments(program: str) -> tuple[Pipeline, RunPlan]:
    """`--pipeline NAME --plan FILE`; exits with one line when they do not fit."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--plan", required=True, type=Path)
    given = parser.parse_args()
    plan = RunPlan.model_validate_json(given.plan.read_bytes())
    found = [each for each in plan.request.pipelines if each.name == given.pipeline]
    if not found:
        parser.error(f"the plan has no pipeline {given.pipeline!r}")
    return found[0], plan


def stages_to_run(pipeline: Pipeline, plan: RunPlan) -> tuple[Stage, ...]:
    """Stages that the run asks for and the pipeline has, in the order of the run."""
    return tuple(stage for stage in plan.request.stages if stage in pipeline.stages)


def ready_mark(folder: Path, pipeline: str) -> Path:
    """The file in the folder of a run that tells that the pipeline's queries have run in it."""
    return folder / "ready" / pipeline


def end_with_parent(before: Callable[[], None] = lambda: None) -> None:
    """End this process when its standard input does, which the parent holds.

    before: what is done first, in a thread of its own; this process ends whatever comes of it.
    """

    def wait_for_the_end() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        try:
            before()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, name="parent", daemon=True).start()
