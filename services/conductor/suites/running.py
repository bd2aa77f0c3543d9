"""Runs a suite: offers the next run when it is due and the machine is idle, and saves the place, so
that a restarted conductor resumes.

    suites = Suites(settings, events, notes)
    request = suites.due()                  # polled while nothing runs
    suites.concluded(request, interrupted)  # after it was carried out
"""

from dataclasses import dataclass, replace

import structlog
from confluent_kafka import KafkaException

from schemas import catalogue
from schemas.events import BusEvent, Figures, PhaseStarted, RunRequested, SuiteChanged
from schemas.protocol import RunRequest, Workload
from schemas.suite import Notify, Step, Suite, SuitePosition, SuiteRun
from schemas.validation_errors import DefinitionError
from services.conductor.run_state import RunState
from services.conductor.settings import ConductorSettings
from services.conductor.suites.analysis import Analysis
from services.conductor.suites.baselines import with_baseline
from services.conductor.suites.keeping import Keeping, go_on
from services.conductor.suites.schedule import Place, next_place, pause_ms, skip_pause_ms
from services.conductor.suites.suite_state import SuiteState
from services.conductor.suites.usage import Usage
from services.definitions.domains import load_domain
from services.definitions.engines import installed, load_engine
from services.definitions.requests import new_request
from services.readmodel.history import at_sustainable_share
from services.runtime.bus import Bus
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.clock import Clock, now_ms
from services.runtime.events import Events
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.limits import limits

log = structlog.get_logger()
UNKNOWN_USE_MS = 15_000  # how long to wait for the collector's first samples


@dataclass(frozen=True)
class Now:
    """State of a suite: `running`, `pausing`, `waiting` or `skipping`. next_at_ms: end of the
    pause; None while only the analysis of the last run is awaited."""

    state: str
    place: Place
    run_id: str = ""
    next_at_ms: int | None = None


class Suites:
    """The suite of this conductor, if any. Not thread-safe. keeping: pipelines kept for its next
    run. It also looks for change points, without a suite after runs of watches."""

    def __init__(
        self,
        settings: ConductorSettings,
        events: Events,
        notes: SuiteState,
        suite: Suite | None,
        *,
        clock: Clock = now_ms,
        cores: float | None = None,
    ) -> None:
        self._events, self._notes, self._clock = events, notes, clock
        self._cores = cores or limits().cores
        self._store = store_url(settings)
        self._suite = suite
        self._usage = Usage()
        self._settings = settings
        self._bus = self._open_bus() if suite else None
        self._analysis = Analysis()
        self._measured: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._rested_ms = 0
        self._began_ms = self._marked_ms = clock()
        self._waiting_since_ms: int | None = None
        self._told: Now | None = None
        self.keeping = Keeping()
        self._warm = False  # whether the current run found its pipelines kept
        self._owed_ms = 0  # pause still due when the run before it ended

    def take(self, suite: Suite) -> None:
        """Begin or resume a suite."""
        self._notes.keep_suite(suite)
        self._suite, self._told, self._rested_ms = suite, None, 0
        self._skipped.clear()
        self._bus = self._bus or self._open_bus()

    def look_for_changes(self, run_id: str) -> None:
        """Look for change points once nothing runs and the store knows this run of a watch."""
        self._analysis.want(run_id)

    def give_way(self) -> None:
        """Stop looking for change points, because a run begins."""
        self._analysis.give_way()

    @property
    def notify(self) -> Notify:
        """Notification rules of the current suite; everybody without one."""
        return self._suite.notify if self._suite else Notify()

    @property
    def has_suite(self) -> bool:
        """Whether there is a suite, so that runs are due."""
        return self._suite is not None

    @property
    def is_warm(self) -> bool:
        """Whether the run of `due` finds its pipelines kept from the run before."""
        return self._warm

    @property
    def keep_s(self) -> float:
        """How long pipelines are kept for the next run, if they are."""
        return max(1.0, self._suite.pace.keep_warm_s) if self._suite else 1.0

    def keeps(self, request: RunRequest, state: RunState) -> bool:
        """Whether the pipelines of an ending run are kept: the next run uses the same ones and
        starts soon enough."""
        suite, run, now = self._suite, request.suite, self._clock()
        if suite is None or run is None:
            return False
        at = replace(self._notes.place(suite.name), round=run.round, step=run.step - 1)
        run_ms = now - self._began_ms
        place, due_ms = next_place(suite, at.after(suite, self._began_ms, True, run_ms), now)
        if due_ms > now + 1000 * suite.pace.pause_s:
            return False
        steps = suite.steps[run.step - 1], suite.steps[place.step]
        until_ms = now + 1000 * suite.pace.keep_warm_s
        return go_on(suite.pace, *steps) and self.keeping.keep(request, state, until_ms)

    def due(self) -> RunRequest | None:
        """The run to carry out now; None without a suite, in a pause, on a busy machine, and after
        a skipped step."""
        self._listen()
        self._analysis.tick()
        if self._suite is None:
            return None
        now = self._clock()
        place, due_ms = next_place(self._suite, self._notes.place(self._suite.name), now)
        begin_ms = max(due_ms, self._rested_ms)
        if now < begin_ms or self._analysis.goes_on():
            self._tell(Now("pausing", place, next_at_ms=begin_ms if now < begin_ms else None))
            return None
        reason = self._busy(now)
        if reason:
            self._tell(Now("waiting", place), reason)
            return None
        return self._request(self._suite, place)

    def goes_on_with(self, request: RunRequest) -> bool:
        """Adopt a run that began before this conductor did; False if it is not part of this
        suite."""
        run, suite = request.suite, self._suite
        if run is None or suite is None or run.name != suite.name or run.step > len(suite.steps):
            return False
        place = replace(self._notes.place(suite.name), round=run.round, step=run.step - 1)
        self._begin(place, request.run_id)
        return True

    def concluded(self, request: RunRequest, interrupted: bool) -> None:
        """Note that a run of `due` has ended. An interrupted run is repeated."""
        assert self._suite is not None
        assert self._bus is not None
        assert request.suite is not None
        try:
            for event in self._bus.rest():
                self._take_in(event)
        except (KafkaException, KafkaUnavailableError) as error:
            log.warning("not_all_heard", run_id=request.run_id, reason=str(error))
        suite, place, now = self._suite, self._notes.place(self._suite.name), self._clock()
        run_ms = now - self._began_ms
        since_ms = now - self._marked_ms
        if not interrupted:
            took_place = request.run_id in self._measured
            at = replace(place, round=request.suite.round, step=request.suite.step - 1)
            place = at.after(suite, self._began_ms, took_place, run_ms)
            self._notes.keep_place(suite.name, place)
        used_s = self._usage.own_cpu_seconds
        rest_ms = pause_ms(
            suite.pace, since_ms - self._owed_ms, used_s, self._cores, place.failures
        )
        self._owed_ms = rest_ms
        self._usage.mark()
        self._marked_ms = now
        self._rested_ms = now + rest_ms
        if request.run_id in self._measured:
            self._analysis.begin(request.run_id)
        self._measured.clear()
        log.info("suite_run_ended", run_id=request.run_id, run_ms=run_ms, rest_ms=rest_ms)

    def close(self) -> None:
        """Close the consumers and stop the analysis."""
        self._analysis.end()
        if self._bus is not None:
            self._bus.close()

    def _open_bus(self) -> Bus:
        """Only for a suite: single runs need no second reader of the bus."""
        topics = (catalogue.RESOURCES, catalogue.LIFECYCLE)
        return Bus(self._settings, "conductor", topics, self._events)

    def _request(self, suite: Suite, place: Place) -> RunRequest | None:
        step = suite.steps[place.step]
        position = SuiteRun(name=suite.name, round=place.round, step=place.step + 1)
        workload = undisturbed(step.workload, suite.pace.busy_share)
        try:
            domain = load_domain(workload.domain).spec
            request = new_request(workload, step.pipelines, step.stages, domain, position)
            request = at_sustainable_share(request, self._store)
            request = with_baseline(request, step.baseline, self._store)
            self._check_engines(step)
        except (DefinitionError, QueryError) as error:
            self._skip(suite, place, str(error))
            return None
        self._skipped.pop(step.label, None)
        run_id = request.run_id
        self._warm = self.keeping.take(request, self._clock())
        if self._warm:
            environment = request.environment | {"pipelines_kept": True}
            request = request.model_copy(update={"environment": environment})
        # Save first, so that the run is accounted for after a kill.
        self._notes.begin_run(run_id, self._clock())
        self._begin(place, run_id)
        self._events.publish(RunRequested(run_id=run_id, request=request))
        return request

    def _check_engines(self, step: Step) -> None:
        """Raise DefinitionError if an engine is not installed: a suite does not install engines
        that it only rotates through."""
        for one in step.pipelines if step.kind == "engines" else ():
            engine = load_engine(one.engine)
            if installed(engine, self._settings).lacking():
                raise DefinitionError(
                    f"{engine.spec.name} is not installed: ./tidegauge engines {engine.spec.name}"
                    " --install"
                )

    def _begin(self, place: Place, run_id: str) -> None:
        self._began_ms, self._waiting_since_ms = self._clock(), None
        if not self._warm:  # otherwise their use during the pause counts too
            self._usage.mark()
            self._marked_ms, self._owed_ms = self._began_ms, 0
        self._tell(Now("running", place, run_id))

    def _skip(self, suite: Suite, place: Place, reason: str) -> None:
        """Publish why a step is skipped and go to the next; it is retried in the next round."""
        self._skipped[suite.steps[place.step].label] = reason
        self._tell(Now("skipping", place), reason)
        place = place.given_up(suite, self._clock())
        self._notes.keep_place(suite.name, place)
        self._rested_ms = self._clock() + skip_pause_ms(suite, place.failures)
        self._waiting_since_ms = None

    def _busy(self, now: int) -> str:
        """Why the next run should wait, or an empty string."""
        assert self._suite is not None
        pace = self._suite.pace
        if pace.busy_share == 1:
            return ""
        self._waiting_since_ms = self._waiting_since_ms or now
        waited_ms = now - self._waiting_since_ms
        others = self._usage.of_others(now)
        if others is None:
            return "the use of the machine is not known yet" if waited_ms < UNKNOWN_USE_MS else ""
        if others <= pace.busy_share * self._cores or waited_ms >= pace.patience_s * 1000:
            return ""
        return f"other processes use {others:.1f} of {self._cores} cores"

    def _listen(self) -> None:
        """Read all events that have arrived."""
        while self._bus is not None and (events := self._bus.poll(0)):
            for event in events:
                self._take_in(event)

    def _take_in(self, event: BusEvent) -> None:
        match event:
            case Figures(topic=catalogue.RESOURCES, fields=fields):
                self._usage.add(fields)
            case PhaseStarted(phase="measure", run_id=run_id):
                self._measured.add(run_id)

    def _tell(self, now: Now, reason: str = "") -> None:
        assert self._suite is not None
        if now == self._told:
            return
        self._told = now
        position = SuitePosition(
            name=self._suite.name,
            state=now.state,
            round=now.place.round,
            step=now.place.step + 1,
            steps=len(self._suite.steps),
            label=self._suite.steps[now.place.step].label,
            runs=now.place.runs,
            run_id=now.run_id,
            reason=reason,
            next_at_ms=now.next_at_ms,
            skipped=tuple(f"{label}: {why}" for label, why in self._skipped.items()),
        )
        self._events.publish(SuiteChanged(run_id=now.run_id, position=position))
        log.info("suite", **position.model_dump())


def undisturbed(workload: Workload, busy_share: float) -> Workload:
    """The workload with the suite's `busy_share` as a validity rule, if it has none itself: a run
    is not valid if others used more during it than the suite would have waited for. Not for a
    search, whose steps would count as too much load."""
    rules = workload.validity
    if busy_share == 1 or workload.search or rules.max_others_share is not None:
        return workload
    rules = rules.model_copy(update={"max_others_share": busy_share})
    return workload.model_copy(update={"validity": rules})
