"""The agent: commands of a run → drivers, and what became of them → lifecycle events."""

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from schemas import protocol
from schemas.protocol import PhasePlan, Pipeline, RunPlan
from services.runner.processes import (
    SPARK,
    Driver,
    bury,
    last_meaningful_line,
    read_tail,
    start_driver,
    stop_drivers,
)
from services.runtime.clock import now_ms
from services.runtime.events import Events
from services.runtime.program import EXIT_REPORTED, ready_mark
from services.runtime.trusted import pipeline_objection

# The program that runs a pipeline, by the pipeline's mode.
PROGRAMS = {
    "real-time": SPARK,
    "micro-batch": SPARK,
    "continuous": SPARK,
    "calibration": "services.calibration_pipeline",
    "external": "services.external_pipeline",
}
PLAN = "plan.json"
# Drivers that start at once need as long as one after the other when they wait for cores, and some
# of Spark's own time limits are too short for that ("Python worker failed to connect back").
STARTING_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
KEPT_S = 60.0  # how long drivers that were kept wait for the next run
StartDriver = Callable[[str, str, Path, Path, str], Driver]


class Agent:
    """Runs the drivers of at most one run at a time.

    Drivers that a `stop` asked to keep go on with the next run, if it has the same pipelines,
    stages and format of records: what they publish belongs to the run that their input belongs to.
    Their files stay where they were.

    data: folder of the stack's state; the plan, checkpoints and scratch files of a run are in
    `runs/<run_id>`, which is removed when the run has been stopped; logs are in `logs`.
    objection: why a pipeline must not be started, or None (services/runtime/trusted.py).
    """

    def __init__(
        self,
        data: Path,
        events: Events,
        start: StartDriver = start_driver,
        clock_s: Callable[[], float] = time.monotonic,
        objection: Callable[[Pipeline], str | None] | None = None,
    ) -> None:
        self._data = data
        self._objection = objection or partial(pipeline_objection, data=data)
        self._events = events
        self._start = start
        self._drivers: list[Driver] = []
        self._to_start: deque[Pipeline] = deque()
        self._pipelines: list[str] = []
        self._restarts: dict[str, int] = {}
        self._max_restarts: dict[str, int] = {}
        self._run_id = ""
        self._home = ""
        self._due_ms: int | None = None
        self._kept: tuple[RunPlan, float] | None = None
        self._plan: RunPlan | None = None
        self._clock_s = clock_s
        self._log = structlog.get_logger().bind(service="runner")

    def prepare(self, plan: RunPlan) -> None:
        """Start one driver per pipeline of the plan, STARTING_AT_ONCE at a time. A run that is
        still there is stopped first; the same run again changes nothing."""
        run_id = plan.request.run_id
        if run_id == self._run_id:
            return
        if self._go_on(plan):
            return
        self.stop(self._run_id)
        self._end_kept()
        if self._refused(plan):
            return
        self._run_id = self._home = run_id
        self._plan = plan
        self._write(plan)
        for pipeline in plan.request.pipelines:
            self._pipelines.append(pipeline.name)
            self._max_restarts[pipeline.name] = pipeline.max_restarts
        if not plan.request.workload.pipelines_start_s:
            self._to_start.extend(in_order(plan.request.pipelines))
            self._start_next()

    def _refused(self, plan: RunPlan) -> bool:
        """Whether a pipeline of the plan must not be started here; the run fails then."""
        objections = {each.name: self._objection(each) for each in plan.request.pipelines}
        found = {name: reason for name, reason in objections.items() if reason is not None}
        run_id = plan.request.run_id
        for name, reason in found.items():
            detail = {"reason": f"{name} is not started: {reason}"}
            self._events.lifecycle(protocol.FAILED, run_id, pipeline=name, detail=detail)
            self._log.warning("pipeline_refused", run_id=run_id, pipeline=name, reason=reason)
        return bool(found)

    def begin(self, run_id: str, phases: PhasePlan) -> None:
        """The load begins: drivers that start later than it know when."""
        delay_s = self._plan.request.workload.pipelines_start_s if self._plan else 0
        if delay_s and run_id == self._run_id and not self._drivers:
            self._due_ms = phases.load_start_ms + 1000 * delay_s

    def _launch_when_due(self) -> None:
        if self._due_ms is not None and self._plan is not None and now_ms() >= self._due_ms:
            self._due_ms = None
            self._to_start.extend(in_order(self._plan.request.pipelines))

    def _start_next(self) -> None:
        """Start drivers, but no more at once than the machine can."""
        folder, run_id = self._folder(self._home), self._run_id
        while self._to_start and self._starting() < STARTING_AT_ONCE:
            pipeline = self._to_start.popleft()
            log = self._data / "logs" / f"pipeline-{pipeline.name}.log"
            program = PROGRAMS[pipeline.mode]
            self._drivers.append(self._start(pipeline.name, run_id, folder / PLAN, log, program))
            self._log.info("driver_started", run_id=run_id, pipeline=pipeline.name)

    def _starting(self) -> int:
        folder = self._folder(self._home)
        return sum(
            driver.program == SPARK and not ready_mark(folder, driver.pipeline).exists()
            for driver in self._drivers
        )

    def stop(self, run_id: str, keep: bool = False) -> None:
        """Stop the drivers of a run, remove what only the run needed, and say so for every pipeline
        (also one that had failed). keep: leave them for the next run, for up to KEPT_S."""
        if not run_id or run_id != self._run_id:
            return
        pipelines, whole = self._pipelines, len(self._drivers) == len(self._pipelines)
        if keep and whole and self._plan is not None:
            self._kept = (self._plan, self._clock_s())
        else:
            stop_drivers(self._drivers)
            self._clear()
        for pipeline in pipelines:
            self._events.lifecycle(protocol.STOPPED, run_id, pipeline=pipeline)
        self._run_id = ""
        self._log.info("run_stopped", run_id=run_id, kept=self._kept is not None)

    def _go_on(self, plan: RunPlan) -> bool:
        """Let the drivers that were kept serve this run, if they suit it and are all alive."""
        kept, self._kept = self._kept, None
        alive = all(driver.process.poll() is None for driver in self._drivers)
        if kept is None or not alive or served(kept[0]) != served(plan):
            self._kept = kept
            return False
        run_id = plan.request.run_id
        self._run_id, self._plan = run_id, plan
        self._drivers = [replace(driver, run_id=run_id) for driver in self._drivers]
        for pipeline in self._pipelines:
            self._events.lifecycle(protocol.READY, run_id, pipeline=pipeline)
        self._log.info("drivers_go_on", run_id=run_id)
        return True

    def _end_kept(self) -> None:
        if self._kept is not None:
            stop_drivers(self._drivers)
            self._kept = None
            self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._folder(self._home), ignore_errors=True)
        self._drivers, self._pipelines, self._home, self._plan = [], [], "", None
        self._due_ms = None
        self._to_start.clear()
        self._restarts, self._max_restarts = {}, {}

    def watch(self) -> None:
        """Start a driver that was killed again, and say FAILED, once, for one that ended although
        nobody stopped it and cannot go on: one that was never ready, that told its failure itself,
        or that was started again `max_restarts` times. Drivers kept for no run that came end."""
        if self._kept is not None:
            if self._clock_s() - self._kept[1] > KEPT_S:
                self._end_kept()
            return
        self._launch_when_due()
        for driver in [each for each in self._drivers if each.process.poll() is not None]:
            self._drivers.remove(driver)
            bury(driver)
            code = driver.process.returncode
            self._log.error(
                "driver_died", run_id=driver.run_id, pipeline=driver.pipeline, code=code
            )
            if code != EXIT_REPORTED or driver.run_id != self._home:  # it tells of the run at home
                line = last_meaningful_line(read_tail(driver.log))
                reason = f"the driver of {driver.pipeline} died (exit code {code}): {line}"
                if not self._restart(driver, reason):
                    self._say(protocol.FAILED, driver, reason=reason)
        self._start_next()

    def _restart(self, driver: Driver, reason: str) -> bool:
        """Start a driver again, which goes on from its checkpoints, if that makes sense."""
        folder, number = self._folder(self._home), self._restarts.get(driver.pipeline, 0) + 1
        was_ready = ready_mark(folder, driver.pipeline).exists()
        is_home = driver.run_id == self._home  # else its plan would tell of another run
        if not was_ready or not is_home or number > self._max_restarts[driver.pipeline]:
            return False
        self._restarts[driver.pipeline] = number
        self._say(protocol.PIPELINE_DOWN, driver, reason=reason, restart=number)
        driver.log.replace(driver.log.with_suffix(".log.1"))
        plan = folder / PLAN
        again = self._start(driver.pipeline, driver.run_id, plan, driver.log, driver.program)
        self._drivers.append(again)
        return True

    def _say(self, event: str, driver: Driver, **detail: object) -> None:
        run_id, pipeline = driver.run_id, driver.pipeline
        self._events.lifecycle(event, run_id, pipeline=pipeline, detail=detail)

    def close(self) -> None:
        """Stop whatever runs."""
        self.stop(self._run_id)
        self._end_kept()

    def _folder(self, run_id: str) -> Path:
        return self._data / "runs" / run_id

    def _write(self, plan: RunPlan) -> None:
        path = self._folder(plan.request.run_id) / PLAN
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(plan.model_dump_json())


def in_order(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    """Pipelines in the order in which they start: first those of which Spark starts Python workers,
    for which it waits no longer than ten seconds, whatever else the machine has to do."""
    return sorted(pipelines, key=lambda pipeline: pipeline.implementation != "state")


def served(plan: RunPlan) -> tuple[object, ...]:
    """What must be the same for drivers to serve a run: pipelines, stages, format of records."""
    request = plan.request
    workload = request.workload
    return request.pipelines, request.stages, workload.content.format, workload.windows
