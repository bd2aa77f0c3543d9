"""The agent: turns commands into pipeline processes, and their state into events."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from schemas import catalogue
from schemas.codec import said_by
from schemas.engine import (
    NO_BATCH,
    REASON_CHARACTERS,
    FailedLine,
    Line,
    ProgressLine,
    ReadyLine,
    ResultsLine,
    TasksLine,
    UndecodableLine,
)
from schemas.events import (
    Failed,
    PipelineDown,
    PipelineReady,
    PipelineStopped,
    PipelineUp,
    ProxyEnded,
    ResultsReceived,
    StartAgain,
)
from schemas.protocol import CITATION, PhasePlan, Pipeline, RunPlan, RunRequest
from schemas.workload import PLANTED
from services.definitions.engines import Installed, engine_for, installed
from services.definitions.trusted import pipeline_objection
from services.runner.processes import (
    MAX_LINE_BYTES,
    PipelineProcess,
    dead_letter,
    last_meaningful_line,
    read_tail,
    reap,
    start_process,
    stop_processes,
    with_concurrent_collector,
)
from services.runner.proxy.process import FetchProxy, Orders
from services.runner.session import (
    MOST_PROXY_ENDS,
    MOST_TRIES,
    Member,
    RunPipelines,
    Waited,
    engine_plan,
    in_start_order,
    lacked_cpu,
    waited,
)
from services.runner.small_disk import SmallDisk
from services.runtime.events import MAX_LETTERS, Events
from services.runtime.kafka_security import security
from services.runtime.limits import limits
from services.runtime.logs import MAX_LOG_BYTES, bound_log, get_log
from services.runtime.process import now_ms
from services.runtime.program import plan_file
from services.runtime.settings import ServiceSettings

StartProcess = Callable[[Pipeline, Installed, Path, Path], PipelineProcess]


@dataclass(frozen=True)
class Idle:
    """No pipelines."""


@dataclass(frozen=True)
class Running:
    """The pipelines of a run are running or starting."""

    session: RunPipelines


@dataclass(frozen=True)
class KeptPipelines:
    """The run has ended; its pipelines are kept for the next one."""

    session: RunPipelines
    until_s: float


@dataclass(frozen=True)
class RunnerLimits:
    """starting_at_once: programs that start slowly. letters: dead letters of a pipeline in a run.
    log_bytes: of the log of a program."""

    # Programs competing for cores take as long together as one after the other, and some of their
    # own start timeouts are too short for that.
    starting_at_once: int = max(1, limits().whole_cores // 2)
    letters: int = MAX_LETTERS
    log_bytes: int = MAX_LOG_BYTES


LIMITS = RunnerLimits()


class Agent:
    """Runs the pipelines of at most one run at a time.

    Pipelines kept by a `stop` serve the next run if its pipelines, stages and record format are the
    same. Outputs belong to the run of their input. The files of kept pipelines do not move.

    settings.data: the stack's state folder. Plans and pipeline files of a run are in
    `runs/<run_id>`, which is removed when the run is stopped; logs are in `logs`.
    objection: the reason why a pipeline must not be started, or None
    (services/definitions/trusted.py). remove_topics: deletes the topics with one of these
    prefixes. meter: the processor time that the machine has lacked.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        events: Events,
        start: StartProcess = start_process,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        objection: Callable[[Pipeline], str | None] | None = None,
        remove_topics: Callable[[tuple[str, ...]], None] = lambda _prefixes: None,
        meter: Callable[[], Waited] = waited,
        limits: RunnerLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._settings = settings
        self._data = settings.data.resolve()
        self._events = events
        self._start = start
        self._clock_s = clock_s
        self._objection = objection or partial(pipeline_objection, data=self._data)
        self._remove_topics = remove_topics
        self._meter = meter
        self._state: Idle | Running | KeptPipelines = Idle()
        self._log = get_log().bind(service="runner")

    def prepare(self, plan: RunPlan) -> None:
        """Start one program per pipeline of the plan, a few slow starters at a time. Stops
        an active run first; idempotent for the same run. Raises OSError, and ValueError for a plan
        that cannot be carried out."""
        run_id = plan.request.run_id
        if isinstance(self._state, Running) and self._state.session.run_id == run_id:
            return
        if isinstance(self._state, KeptPipelines) and self._state.session.can_serve(plan):
            self._go_on(self._state.session, plan)
            return
        self.close()
        if self._is_refused(plan):
            return
        session = self._session(plan)
        self._state = Running(session)  # from now on `stop` ends what was started
        for member in session.members:
            self._write_plan(session, member)
        self._start_next(session)

    def _session(self, plan: RunPlan) -> RunPipelines:
        request = plan.request
        folder = self._data / "runs" / request.run_id
        members = [Member(pipeline, engine_for(pipeline)) for pipeline in request.pipelines]
        folder.mkdir(parents=True, exist_ok=True)
        start_ms = None if request.workload.pipelines_start_s else 0
        until_s = self._clock_s() + plan.start_timeout_s
        return RunPipelines(plan, folder, in_start_order(members), start_ms, until_s)

    def _write_plan(self, session: RunPipelines, member: Member) -> None:
        """Write the plan of a pipeline, and make its proxy and its disk if the run needs them.
        Raises OSError, ValueError."""
        plan, pipeline, bootstrap = session.plan, member.pipeline, self._settings.open_bootstrap
        if plan.request.workload.has_proxy:
            member.proxy = self._proxy(plan.request, pipeline.name)
            bootstrap = member.proxy.bootstrap
        path = plan_file(session.folder, pipeline.name)
        path.touch(mode=0o600)
        own = session.folder / pipeline.name
        if (disk_mb := plan.request.workload.disk_mb) is not None:
            member.disk = SmallDisk(own, disk_mb)
        content = engine_plan(plan, pipeline, own, self._settings, bootstrap)
        path.write_text(content.model_dump_json())

    def _proxy(self, request: RunRequest, pipeline: str) -> FetchProxy:
        """Start the proxy between the clients of a pipeline and the broker. Raises ValueError if
        their connections are encrypted."""
        if security(self._settings.kafka_properties).is_encrypted:
            raise ValueError(
                "processing_time needs pipelines that connect to Kafka without encryption, because "
                "a proxy reads what they are sent"
            )
        topics = request.domain_of(pipeline).topics
        slow_ms = max((each.delay_ms for each in request.workload.kills), default=0)
        orders = Orders(run_id=request.run_id, pipeline=pipeline, topics=topics, slow_ms=slow_ms)
        return FetchProxy(self._settings, orders, self._data / "logs" / f"proxy-{pipeline}.log")

    def _is_refused(self, plan: RunPlan) -> bool:
        """Whether a pipeline of the plan must not be started here; fails the run if so."""
        objections = {each.name: self._objection(each) for each in plan.request.pipelines}
        result = {name: reason for name, reason in objections.items() if reason is not None}
        run_id = plan.request.run_id
        for name, reason in result.items():
            problem = f"{name} was not started: {reason}"
            self._events.publish(Failed(run_id=run_id, pipeline=name, reason=problem))
            self._log.warning("pipeline_refused", run_id=run_id, pipeline=name, reason=reason)
        if result:
            self._say_stopped(plan)
        return bool(result)

    def begin(self, run_id: str, phases: PhasePlan) -> None:
        """Record the start of the load, for pipelines that start later. From then on, none is
        started again for a failed start."""
        if isinstance(self._state, Running) and self._state.session.run_id == run_id:
            session = self._state.session
            session.start_until_s = 0
            delay_s = session.plan.request.workload.pipelines_start_s
            if delay_s and all(member.state == "waiting" for member in session.members):
                session.start_ms = phases.load_start_ms + 1000 * delay_s

    def _start_next(self, session: RunPipelines) -> None:
        """Start waiting programs, within the limit of slow starters."""
        if session.start_ms is None or now_ms() < session.start_ms:
            return
        for member in session.members:
            is_full = sum(each.is_slow for each in session.members) >= self._limits.starting_at_once
            must_wait = is_full and member.engine.spec.processes.starts_slowly
            if member.state == "waiting" and not must_wait:
                member.state = "starting"
                self._launch(session, member)

    def _launch(self, session: RunPipelines, member: Member) -> None:
        name = member.pipeline.name
        log = self._data / "logs" / f"pipeline-{name}.log"
        try:
            plan = plan_file(session.folder, name)
            place = installed(member.engine, self._settings)
            member.version = place.version()
            if session.plan.request.profile == CITATION:
                place = with_concurrent_collector(place)
            member.tries, member.began = member.tries + 1, self._meter()
            member.process = self._start(member.pipeline, place, plan, log)
        except OSError as error:
            self._fail(session, member, f"{name} cannot be started: {error}")
            return
        self._log.info("pipeline_started", run_id=session.run_id, pipeline=name)

    def stop(self, run_id: str, keep_s: float = 0) -> None:
        """Stop the pipelines of a run, remove the files of the run, and publish an event for every
        pipeline, including failed ones. keep_s: keep them running this long for the next run."""
        if not isinstance(self._state, Running) or self._state.session.run_id != run_id:
            return
        session = self._state.session
        if keep_s and session.can_serve(session.plan):
            self._state = KeptPipelines(session, self._clock_s() + keep_s)
        else:
            self._end(session)
        self._say_stopped(session.plan)
        self._log.info("run_stopped", run_id=run_id, kept=isinstance(self._state, KeptPipelines))

    def give_up(self, plan: RunPlan) -> None:
        """Publish that the pipelines of a plan that cannot be carried out do not run; stops those
        that do."""
        if isinstance(self._state, Running) and self._state.session.run_id == plan.request.run_id:
            self.stop(plan.request.run_id)
        else:
            self._say_stopped(plan)

    def _say_stopped(self, plan: RunPlan) -> None:
        request = plan.request
        for pipeline in request.pipelines:
            self._events.publish(PipelineStopped(run_id=request.run_id, pipeline=pipeline.name))

    def _go_on(self, session: RunPipelines, plan: RunPlan) -> None:
        """Assign the kept pipelines to another run."""
        session.plan, session.start_until_s = plan, 0
        self._state = Running(session)
        for member in session.members:
            member.refused = 0
            if member.proxy is not None:
                member.proxy.serve_run(session.run_id)
            self._publish_ready(PipelineReady, session, member)
        self._log.info("pipelines_go_on", run_id=session.run_id)

    def _end(self, session: RunPipelines) -> None:
        """Stop the programs of a run, and remove its files and their own topics."""
        stop_processes(session.processes)
        for member in session.members:
            if member.proxy is not None:
                member.proxy.stop()
            if member.disk is not None:
                member.disk.remove()
        shutil.rmtree(session.folder, ignore_errors=True)
        self._state = Idle()
        names = (each.pipeline.name for each in session.members)
        try:
            self._remove_topics(tuple(catalogue.engine_group(name, session.home) for name in names))
        except KafkaException as error:  # an external Kafka may not permit it
            self._log.warning("topics_not_removed", run_id=session.home, reason=str(error))

    def watch(self) -> None:
        """Publish program output, start waiting programs, and handle exited ones. Stops kept
        pipelines whose time has expired."""
        if isinstance(self._state, Running):
            session = self._state.session
            for member in session.members:
                self._look_at(session, member)
            self._start_next(session)
        elif isinstance(self._state, KeptPipelines):
            for process in self._state.session.processes:
                process.said()
                bound_log(process.log, self._limits.log_bytes)
            if self._clock_s() > self._state.until_s:
                self._end(self._state.session)

    def _look_at(self, session: RunPipelines, member: Member) -> None:
        if member.proxy is not None and member.proxy.code is not None:
            self._replace_proxy(session, member, member.proxy)
        process = member.process
        if process is None:
            return
        code = process.code  # before reading output, or its last lines could be missed
        if code is None:
            bound_log(process.log, self._limits.log_bytes)
        name = member.pipeline.name
        for line in process.said():
            try:
                self._publish(session, member, line)
            except (ArithmeticError, ValueError, KafkaException) as error:
                self._fail(session, member, f"{name}: a line cannot be published: {said_by(error)}")
        if code is None or member.process is not process:
            return
        member.process = None
        reap(process)
        self._log.error("pipeline_ended", run_id=session.run_id, pipeline=name, code=code)
        if member.state != "ended":
            line_of_log = member.failure or last_meaningful_line(read_tail(process.log))
            reason = f"the program of {name} exited (code {code}): {line_of_log}"
            again = self._start_again(session, member, process, reason)
            if not again and not self._restart(session, member, process, reason):
                process.keep_log()
                self._fail(session, member, reason)

    def _replace_proxy(self, session: RunPipelines, member: Member, proxy: FetchProxy) -> None:
        """Start a proxy again that has ended, unless it does so again and again."""
        name, code = member.pipeline.name, proxy.code or 0
        if member.proxy_ends >= MOST_PROXY_ENDS:
            if member.state != "ended":
                self._fail(session, member, f"the proxy of {name} ends again and again")
            return
        member.proxy_ends += 1
        self._log.error("proxy_ended", run_id=session.run_id, pipeline=name, code=code)
        self._events.publish(ProxyEnded(run_id=session.run_id, pipeline=name, code=code))
        proxy.start_again()

    def _publish(self, session: RunPipelines, member: Member, line: Line) -> None:
        """Publish one line of a program as an event of the run, unless the program has failed."""
        name = member.pipeline.name
        if member.state == "ended":
            return
        if isinstance(line, ReadyLine | ProgressLine):
            size = len(json.dumps(line.detail))  # may be several times that of the line
            if size > MAX_LINE_BYTES:
                problem = f"the detail of a {line.event} line takes {size} bytes as JSON"
                self._fail(
                    session, member, f"{name}: {problem}, at most {MAX_LINE_BYTES} are allowed"
                )
                return
        if isinstance(line, ReadyLine):
            if member.state != "ready":
                again = member.state == "down"
                member.state, member.detail = "ready", member.with_version(line.detail)
                self._publish_ready(PipelineUp if again else PipelineReady, session, member)
        elif isinstance(line, ProgressLine | TasksLine):
            self._publish_progress(session, member, line)
        elif isinstance(line, ResultsLine):
            self._publish_results(session, name, line)
        elif isinstance(line, UndecodableLine):
            if line.topic in session.plan.start_offsets:
                self._refuse(session, member, line)
        elif isinstance(line, FailedLine):
            reason = " ".join(line.reason.split())[:REASON_CHARACTERS]
            if self._will_restart(session, member):
                member.failure = reason
                return
            where = f"{name} {line.stage}" if line.stage else name
            process = member.process
            if process is None or not self._start_again(session, member, process, reason):
                self._fail(session, member, f"{where}: {reason}", line.stage)

    def _publish_progress(
        self, session: RunPipelines, member: Member, line: ProgressLine | TasksLine
    ) -> None:
        fields: dict[str, Any]
        if isinstance(line, TasksLine):
            fields = {"stage": "", "batch_id": NO_BATCH, "input_rows": 0}
            fields["scheduler_delays_ms"] = line.delays_ms
            fields["scheduler_delay_tasks"] = line.tasks
        elif line.stage in session.plan.request.stages_of(member.pipeline):
            fields = line.model_dump(exclude={"event"}) | {"detail": json.dumps(line.detail)}
        else:
            return
        self._events.publish_figures(
            catalogue.PIPELINE, session.run_id, pipeline=member.pipeline.name, **fields
        )

    def _publish_results(self, session: RunPipelines, name: str, line: ResultsLine) -> None:
        workload, stages = session.plan.request.workload, session.plan.request.stages
        self._events.publish(
            ResultsReceived(
                run_id=session.run_id,
                pipeline=name,
                transport=workload.transport,
                frames_received=line.frames_received,
                sent={stage: count for stage, count in line.sent.items() if stage in stages},
                received={
                    stage: count for stage, count in line.received.items() if stage in stages
                },
                duplicates=line.duplicates,
                refused=line.refused,
            )
        )

    def _refuse(self, session: RunPipelines, member: Member, line: UndecodableLine) -> None:
        """Store an undecodable value as a dead letter: the first ones of a pipeline in a run."""
        member.refused += 1
        name, run_id = member.pipeline.name, session.run_id
        if member.refused <= self._limits.letters:
            self._events.dead_letter(dead_letter(line, name), run_id)
        elif member.refused == self._limits.letters + 1:
            self._log.warning("further_dead_letters_left_out", run_id=run_id, pipeline=name)

    def _start_again(
        self, session: RunPipelines, member: Member, failed: PipelineProcess, reason: str
    ) -> bool:
        """Start a program again that failed for lack of processor time before the load began, if
        there is time left for it. It waits until fewer programs are starting."""
        began, may_start = member.began, self._clock_s() < session.start_until_s
        if not may_start or member.tries >= MOST_TRIES or member.state not in ("starting", "ready"):
            return False
        if began is None or not lacked_cpu(reason, began, self._meter()):
            return False
        reap(failed)
        failed.log.replace(failed.log.with_suffix(".log.1"))
        if not member.engine.spec.processes.resumes:
            shutil.rmtree(session.folder / member.pipeline.name, ignore_errors=True)
        member.process, member.state = None, "waiting"
        name, attempt = member.pipeline.name, member.tries + 1
        self._events.publish(
            StartAgain(run_id=session.run_id, pipeline=name, reason=reason, attempt=attempt)
        )
        self._log.warning(
            "pipeline_starts_again", run_id=session.run_id, reason=reason, attempt=attempt
        )
        return True

    def _will_restart(self, session: RunPipelines, member: Member) -> bool:
        """Whether a program that says that it has failed is restarted once it has ended, as the
        workload makes it fail."""
        is_provoked = session.plan.request.workload.has_fault_of(*PLANTED)
        return is_provoked and member.state in ("ready", "down")

    def _restart(
        self, session: RunPipelines, member: Member, ended: PipelineProcess, reason: str
    ) -> bool:
        """Restart a program that was ready and can resume, unless it ended too often, not counting
        while its disk is full, or serves another run than its plan names."""
        can_go_on = member.state in ("ready", "down") and member.engine.spec.processes.resumes
        is_home = session.run_id == session.home
        if member.disk is not None and member.disk.is_full:
            member.excused += 1
        counted = member.restarts - member.excused
        if not can_go_on or not is_home or counted >= member.pipeline.max_restarts:
            return False
        member.restarts += 1
        member.state, member.failure = "down", ""
        name = member.pipeline.name
        self._events.publish(
            PipelineDown(
                run_id=session.run_id, pipeline=name, reason=reason, restart=member.restarts
            )
        )
        ended.log.replace(ended.log.with_suffix(".log.1"))
        self._launch(session, member)
        return True

    def _fail(self, session: RunPipelines, member: Member, reason: str, stage: str = "") -> None:
        """Publish once that a pipeline has failed."""
        member.state = "ended"
        if member.process is not None:
            member.process.keep_log()  # now: the run may be stopped before the program has ended
        name = member.pipeline.name
        self._events.publish(
            Failed(run_id=session.run_id, pipeline=name, stage=stage, reason=reason)
        )

    def _publish_ready(
        self, kind: type[PipelineReady | PipelineUp], session: RunPipelines, member: Member
    ) -> None:
        name = member.pipeline.name
        self._events.publish(kind(run_id=session.run_id, pipeline=name, about_engine=member.detail))

    def close(self) -> None:
        """Stop all pipelines."""
        if isinstance(self._state, Running):
            self.stop(self._state.session.run_id)
        elif isinstance(self._state, KeptPipelines):
            self._end(self._state.session)
