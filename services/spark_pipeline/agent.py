"""The agent: commands of a run → drivers, and what became of them → lifecycle events."""

import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from schemas import protocol
from schemas.protocol import RunPlan
from services.runtime.events import Events
from services.spark_pipeline.drivers import (
    Driver,
    bury,
    last_meaningful_line,
    read_tail,
    ready_mark,
    start_driver,
    stop_drivers,
)
from services.spark_pipeline.exits import EXIT_REPORTED

# The program that runs a pipeline, by the pipeline's mode.
PROGRAMS = {
    "real-time": "driver",
    "micro-batch": "driver",
    "continuous": "driver",
    "calibration": "calibration",
    "external": "external",
}
PLAN = "plan.json"
StartDriver = Callable[[str, str, Path, Path, str], Driver]


class Agent:
    """Runs the drivers of at most one run at a time.

    data: folder of the stack's state; the plan, checkpoints and scratch files of a run are in
    `runs/<run_id>`, which is removed when the run has been stopped; logs are in `logs`.
    """

    def __init__(self, data: Path, events: Events, start: StartDriver = start_driver) -> None:
        self._data = data
        self._events = events
        self._start = start
        self._drivers: list[Driver] = []
        self._pipelines: list[str] = []
        self._restarts: dict[str, int] = {}
        self._max_restarts: dict[str, int] = {}
        self._run_id = ""
        self._log = structlog.get_logger().bind(service="spark_pipeline")

    def prepare(self, plan: RunPlan) -> None:
        """Start one driver per pipeline of the plan. A run that is still there is stopped first;
        the same run again changes nothing."""
        run_id = plan.request.run_id
        if run_id == self._run_id:
            return
        self.stop(self._run_id)
        self._run_id = run_id
        path = self._write(plan)
        for pipeline in plan.request.pipelines:
            self._pipelines.append(pipeline.name)
            self._max_restarts[pipeline.name] = pipeline.max_restarts
            log = self._data / "logs" / f"pipeline-{pipeline.name}.log"
            program = PROGRAMS[pipeline.mode]
            self._drivers.append(self._start(pipeline.name, run_id, path, log, program))
            self._log.info("driver_started", run_id=run_id, pipeline=pipeline.name)

    def stop(self, run_id: str) -> None:
        """Stop the drivers of a run, say so for every pipeline (also one that had failed), and
        remove what only the run needed."""
        if not run_id or run_id != self._run_id:
            return
        stop_drivers(self._drivers)
        for pipeline in self._pipelines:
            self._events.lifecycle(protocol.STOPPED, run_id, pipeline=pipeline)
        self._drivers, self._pipelines, self._run_id = [], [], ""
        self._restarts, self._max_restarts = {}, {}
        shutil.rmtree(self._folder(run_id), ignore_errors=True)
        self._log.info("run_stopped", run_id=run_id)

    def watch(self) -> None:
        """Start a driver that was killed again, and say FAILED, once, for one that ended although
        nobody stopped it and cannot go on: one that was never ready, that told its failure itself,
        or that was started again `max_restarts` times."""
        for driver in [each for each in self._drivers if each.process.poll() is not None]:
            self._drivers.remove(driver)
            bury(driver)
            code = driver.process.returncode
            self._log.error(
                "driver_died", run_id=driver.run_id, pipeline=driver.pipeline, code=code
            )
            if code != EXIT_REPORTED:
                line = last_meaningful_line(read_tail(driver.log))
                reason = f"the driver of {driver.pipeline} died (exit code {code}): {line}"
                if not self._restart(driver, reason):
                    self._say(protocol.FAILED, driver, reason=reason)

    def _restart(self, driver: Driver, reason: str) -> bool:
        """Start a driver again, which goes on from its checkpoints, if that makes sense."""
        folder, number = self._folder(driver.run_id), self._restarts.get(driver.pipeline, 0) + 1
        was_ready = ready_mark(folder, driver.pipeline).exists()
        if not was_ready or number > self._max_restarts[driver.pipeline]:
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

    def _folder(self, run_id: str) -> Path:
        return self._data / "runs" / run_id

    def _write(self, plan: RunPlan) -> Path:
        path = self._folder(plan.request.run_id) / PLAN
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(plan.model_dump_json())
        return path
