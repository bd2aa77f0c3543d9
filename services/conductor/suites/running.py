"""Runs a suite: offers the next run when it is due and the machine is idle, and saves the place, so
that a restarted conductor resumes.

    suites = Suites(settings, events, notes)
    request = suites.due()                  # polled while nothing runs
    suites.concluded(request, interrupted)  # after it was carried out

Pipelines stay warm between two runs of a suite. Whether the machine is idle is seen in
`results.resources` (`MachineUsage`). A threshold with `baseline` is resolved against a named run,
or the medians of the last good runs.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from confluent_kafka import KafkaException

from analysis.thresholds import resolved
from schemas import catalogue
from schemas.events import BusEvent, FigureColumns, PhaseStarted, RunRequested, SuiteChanged
from schemas.figures import ResourceFigures
from schemas.protocol import MACHINE, SEEN_WITH_THE_STACK, RunRequest, Workload
from schemas.suite import Notify, Pace, Step, Suite, SuitePosition, SuiteRun
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.conductor.run_state import RunState
from services.conductor.search.bisection import can_stay_warm
from services.conductor.search.searching import keeps_up
from services.conductor.settings import ConductorSettings
from services.conductor.suites.analysis import Analysis
from services.conductor.suites.suite_state import (
    SuitePlace,
    SuiteState,
    next_place,
    pause_ms,
    skip_pause_ms,
)
from services.definitions.domains import load_domain
from services.definitions.engines import engine_for, installed
from services.definitions.requests import new_request
from services.readmodel.history import at_sustainable_share, last_good_runs, past_figures
from services.runtime.clickhouse import QueryError, StoreQuery, query, store_url
from services.runtime.events import Bus, Events
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.limits import limits, machine
from services.runtime.logs import get_log
from services.runtime.process import Clock, now_ms
from services.runtime.settings import ServiceSettings

PREPARING_MS = 10_000  # kept pipelines must not expire while a run asks for them
WINDOW_MS = 10_000
MOST_SAMPLES = 10_000
log = get_log()
UNKNOWN_USE_MS = 15_000  # how long to wait for the collector's first samples


@dataclass
class Keeping:
    """Kept pipelines and their expiry, epoch milliseconds; none if `served` is empty."""

    served: tuple[object, ...] = ()
    until_ms: int = 0

    def keep(self, request: RunRequest, state: RunState, until_ms: int) -> bool:
        """Keep the pipelines of an ending run if possible; returns whether they are kept."""
        if not can_stay_warm(request) or not keeps_up(state):
            return False
        self.served, self.until_ms = request.served, until_ms
        return True

    def take(self, request: RunRequest, now_ms: int) -> bool:
        """Whether a run can use the kept pipelines; nothing is kept after it has begun."""
        result = self.served == request.served and now_ms + PREPARING_MS < self.until_ms
        self.forget()
        return result

    def forget(self) -> None:
        """Discard kept pipelines because another run has begun."""
        self.served, self.until_ms = (), 0


def go_on(pace: Pace, last: Step, following: Step) -> bool:
    """Whether one step can use the pipelines of another after the pause. Not if either is a search,
    which keeps its own, kills a part, or starts pipelines after its load, or if they compile
    differently."""
    if pace.keep_warm_s <= pace.pause_s or not last.same_pipelines(following):
        return False
    workload = following.workload
    if workload.pipelines_start_s or workload.has_long_warm_up != last.workload.has_long_warm_up:
        return False
    return not any(each.workload.search or each.workload.kills for each in (last, following))


@dataclass
class MachineUsage:
    """Samples of the last WINDOW_MS, and use since `mark()`. sees_the_stack: whether the collector
    saw the whole stack since then; not if its services are containers of their own."""

    sees_the_stack: bool = False
    _machine_s: float = 0.0
    _own_s: float = 0.0
    _samples: deque[tuple[int, str, float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES)
    )

    @property
    def own_cpu_seconds(self) -> float:
        """CPU seconds of our own services since `mark()`; of the whole machine if the collector
        does not see them."""
        return self._own_s if self.sees_the_stack else self._machine_s

    def add(self, record: ResourceFigures) -> None:
        """Add one event of `results.resources`."""
        service, cpu_seconds = record["service"], record["cpu_seconds"]
        self._samples.append((record["time"], service, cpu_seconds, record["interval_s"]))
        self._forget_before(record["time"] - WINDOW_MS)
        if service == MACHINE:
            self._machine_s += cpu_seconds
            return
        self._own_s += cpu_seconds
        self.sees_the_stack |= service in SEEN_WITH_THE_STACK

    def mark(self) -> None:
        """Start counting use from now."""
        self._machine_s = self._own_s = 0.0
        self.sees_the_stack = False

    def of_others(self, now_ms: int) -> float | None:
        """Mean cores used by other processes in the last WINDOW_MS; None if most of it was not
        sampled, or if our own processes are not known."""
        self._forget_before(now_ms - WINDOW_MS)
        seconds = sum(interval for _t, name, _cpu, interval in self._samples if name == MACHINE)
        seen = {name for _t, name, _cpu, _i in self._samples}
        if seconds < WINDOW_MS / 2000 or not seen & SEEN_WITH_THE_STACK:
            return None
        total = sum(cpu for _t, name, cpu, _i in self._samples if name == MACHINE)
        own = sum(cpu for _t, name, cpu, _i in self._samples if name != MACHINE)
        return max(0.0, total - own) / seconds

    def _forget_before(self, time_ms: int) -> None:
        while self._samples and self._samples[0][0] < time_ms:
            self._samples.popleft()


def with_baseline(
    request: RunRequest, baseline: str, url: str, ask: StoreQuery = query
) -> RunRequest:
    """The request with numbers in its thresholds in place of a baseline's figures. These thresholds
    are dropped if there is no baseline yet: this run may become it.

    baseline: a run id, or empty for the last good runs. Raises DefinitionError if they lack
    required figures, and QueryError.
    """
    thresholds = [parse_threshold(line) for line in request.workload.thresholds]
    if not any(threshold.of_baseline for threshold in thresholds):
        return request
    run_ids = [baseline] if baseline else last_good_runs(request, url, ask)
    if run_ids:
        origin = run_ids[0] if len(run_ids) == 1 else f"the median of {len(run_ids)} runs"
        figures = past_figures(url, run_ids, ask)
        measured = {pipeline.name: request.stages_of(pipeline) for pipeline in request.pipelines}
        try:
            result = resolved(thresholds, figures, origin, measured)
        except ValueError as error:
            raise DefinitionError(f"baseline {origin}: {error}.") from error
    else:
        result = tuple(threshold for threshold in thresholds if not threshold.of_baseline)
    workload = request.workload.model_copy(
        update={"thresholds": tuple(each.text for each in result)}
    )
    return request.model_copy(update={"workload": workload})


OpenBus = Callable[[ServiceSettings, str, Iterable[str], Events], Bus]


@dataclass(frozen=True)
class Now:
    """State of a suite: `running`, `pausing`, `waiting` or `skipping`. next_at_ms: end of the
    pause; None while only the analysis of the last run is awaited."""

    state: str
    place: SuitePlace
    run_id: str = ""
    next_at_ms: int | None = None


class Suites:
    """The suite of this conductor, if any. Not thread-safe. keeping: pipelines kept for its next
    run. It also looks for change points, without a suite after runs of watches.

    open_bus: opens a reader of the topics, which is needed only for a suite. ask: asks the store
    about past runs.
    """

    def __init__(
        self,
        settings: ConductorSettings,
        events: Events,
        notes: SuiteState,
        suite: Suite | None,
        *,
        clock: Clock = now_ms,
        cores: float | None = None,
        machine_cores: float | None = None,
        open_bus: OpenBus = Bus,
        analysis: Analysis | None = None,
        ask: StoreQuery = query,
    ) -> None:
        self._open, self._ask = open_bus, ask
        self._events, self._notes, self._clock = events, notes, clock
        self._cores = cores or limits().cores
        self._machine_cores = machine_cores or machine().cores
        self._store = store_url(settings)
        self._suite = suite
        self._usage = MachineUsage()
        self._settings = settings
        self._bus = self._open_bus() if suite else None
        self._analysis = analysis or Analysis()
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
        # The limit of the conductor's own container is not that of what was used.
        cores = self._cores if self._usage.sees_the_stack else self._machine_cores
        rest_ms = pause_ms(suite.pace, since_ms - self._owed_ms, used_s, cores, place.failures)
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
        return self._open(self._settings, "conductor", topics, self._events)

    def _request(self, suite: Suite, place: SuitePlace) -> RunRequest | None:
        step = suite.steps[place.step]
        position = SuiteRun(name=suite.name, round=place.round, step=place.step + 1)
        workload = undisturbed(step.workload, suite.pace.busy_share)
        try:
            domain = load_domain(workload.domain).spec
            request = new_request(workload, step.pipelines, step.stages, domain, position)
            request = at_sustainable_share(request, self._store, self._ask)
            request = with_baseline(request, step.baseline, self._store, self._ask)
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
        for each in step.pipelines if step.kind == "engines" else ():
            engine = engine_for(each)
            if installed(engine, self._settings).lacking():
                raise DefinitionError(
                    f"{engine.spec.name} is not installed: ./tidegauge engines {engine.spec.name}"
                    " --install"
                )

    def _begin(self, place: SuitePlace, run_id: str) -> None:
        self._began_ms, self._waiting_since_ms = self._clock(), None
        if not self._warm:  # otherwise their use during the pause counts too
            self._usage.mark()
            self._marked_ms, self._owed_ms = self._began_ms, 0
        self._tell(Now("running", place, run_id))

    def _skip(self, suite: Suite, place: SuitePlace, reason: str) -> None:
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
            case FigureColumns(topic=catalogue.RESOURCES, fields=fields):
                self._usage.add(cast("ResourceFigures", fields))
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
