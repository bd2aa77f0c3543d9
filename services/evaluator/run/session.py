"""The run being evaluated: handles commands, feeds the evaluation, publishes."""

from collections import deque
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException

from schemas.codec import said_by
from schemas.commands import Command, Drain, Malformed, Measure, Prepare, Start, Stop
from schemas.events import Drained, Evaluating, EvaluationResumed, Failed, SocketLatency
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.columnar.column_mapping import NotJudgedError
from services.evaluator.columnar.columns import TooMuchStateError
from services.evaluator.pairing.evaluation import check_judged
from services.evaluator.run.publishing import (
    AnyEvaluation,
    LiveFigures,
    Publication,
    Published,
    evaluation_of,
    read_published,
)
from services.evaluator.run.reader import (
    FETCHING,
    DeletedError,
    Frontier,
    Offsets,
    PartitionShard,
    ReadBatch,
    Reader,
    Readiness,
    TimestampError,
    TopicPartition,
    check_kept,
    check_topics,
    commit_reader,
    end_offsets_by,
    reached,
)
from services.evaluator.settings import EvaluatorSettings
from services.runtime.counting import NotRepeatableError
from services.runtime.events import Events, read_commands, unfinished
from services.runtime.kafka import (
    KafkaUnavailableError,
    NoTopicError,
    admin_client,
    assigned_consumer,
    end_offsets,
)
from services.runtime.logs import get_log
from services.runtime.process import Clock, now_ms, release_memory

log = get_log()
REMEMBERED_COMMANDS = 1_000
TELL_LAG_MS = 10_000
TELL_BEHIND_MS, BEHIND_MS = 1_000, 1_000  # while the lag exceeds BEHIND_MS
# Raised for values of records that cannot be counted, such as times beyond 64 bits.
VALUE_ERRORS = (ArithmeticError, ValueError)


@dataclass(frozen=True)
class NoRun:
    """No run."""

    run_id: str = ""
    reader: None = None


@dataclass
class PreparedRun:
    """A run that has not started. readiness, reader: set until it has reported ready."""

    plan: RunPlan
    readiness: Readiness | None = None
    reader: Reader | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.plan.request.run_id


@dataclass
class EvaluatedRun:
    """A run being evaluated. target: the load's end offsets by topic, once known."""

    plan: RunPlan
    evaluation: AnyEvaluation
    publication: Publication
    reader: Reader
    started_ms: int
    target: dict[str, tuple[int, ...]] | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.plan.request.run_id


class RunTopics:
    """Opens the topics of runs for one evaluator, and the bus. shard: the partitions that it
    reads. All methods raise KafkaException or KafkaUnavailableError if the broker is
    unreachable."""

    def __init__(self, settings: EvaluatorSettings) -> None:
        self._settings = settings
        self.shard = PartitionShard(
            settings.evaluator_instance_index, settings.evaluator_instance_count
        )

    def commands(self) -> tuple[list[Command | Malformed], int]:
        """The retained commands, and the offset after them. Raises NoTopicError."""
        return read_commands(self._settings, "evaluator-history")

    def check(self, topics: tuple[str, ...]) -> None:
        """Raise TimestampError for topics that cannot be measured."""
        with closing(assigned_consumer(self._settings, "evaluator-check")) as consumer:
            check_topics(consumer, topics)

    def check_kept(self, offsets: Offsets) -> None:
        """Raise DeletedError if records from these offsets on have been deleted."""
        with closing(assigned_consumer(self._settings, "evaluator-check")) as consumer:
            check_kept(consumer, self.shard.of(offsets))

    def reader(
        self,
        offsets: Offsets,
        inputs: tuple[str, ...],
        *,
        with_offsets: bool,
        with_input_offsets: bool = False,
        with_stamps: bool = False,
    ) -> Reader:
        """A reader of the shard's partitions from these offsets."""
        consumer = assigned_consumer(self._settings, "evaluator", **FETCHING)
        ends = end_offsets_by(admin_client(self._settings, "evaluator"))
        return Reader(
            consumer,
            ends,
            offsets,
            inputs,
            shard=self.shard,
            with_offsets=with_offsets,
            with_input_offsets=with_input_offsets,
            with_stamps=with_stamps,
            commits=commit_reader(self._settings, self.shard.of(offsets), inputs),
        )

    def published(self, run_id: str, producer: str, since_ms: int) -> Published:
        """What `producer` has published of a run prepared at `since_ms` (epoch ms)."""
        return read_published(self._settings, run_id, producer, since_ms)

    def ends(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """End offsets of the shard's partitions."""
        with closing(assigned_consumer(self._settings, "evaluator-ends")) as consumer:
            return self.shard.of({topic: end_offsets(consumer, topic) for topic in topics})


class EvaluatorSession:
    """State machine for at most one run. Commands and batches arrive on one event loop, one at a
    time."""

    def __init__(self, topics: RunTopics, events: Events, clock: Clock = now_ms) -> None:
        self._topics = topics
        self._events = events
        self._clock = clock
        self._carried_out: deque[str] = deque(maxlen=REMEMBERED_COMMANDS)
        self._state: NoRun | PreparedRun | EvaluatedRun = NoRun()
        self._shard = topics.shard
        self.lag_ms = 0
        self.live = LiveFigures()
        self._largest_lag_ms = 0
        self._told_lag_ms = 0

    @property
    def run_id(self) -> str:
        """The id of the run being evaluated, or empty."""
        return self._state.run_id

    @property
    def reader(self) -> Reader | None:
        """The reader of the run's topics, while there is anything to read."""
        return self._state.reader

    @property
    def publication(self) -> Publication | None:
        """What the run has published, once it is running."""
        return self._state.publication if isinstance(self._state, EvaluatedRun) else None

    def resume(self) -> int:
        """Resume the run that a previous process has left unfinished, if any.

        Returns the offset of `control.runs` from which commands must be handled; all before it are
        handled here. Raises KafkaException or KafkaUnavailableError if the broker is unreachable:
        never publish without the published state.
        """
        try:
            commands, end = self._topics.commands()
        except NoTopicError:  # the first conductor creates it
            return 0
        self._carried_out.extend(each.command_id for each in commands)
        of_run = unfinished(commands, self._clock())
        if of_run:
            log.info("run_resumed", run_id=of_run[0].run_id, commands=len(of_run))
        is_started = any(isinstance(each, Start) for each in of_run)
        for command in of_run:
            match command:
                case Prepare():
                    prepared_ms = command.issued_at
                    self._prepare(command.plan, say_ready=not is_started)
                    self._fail_unless_kept()
                case Start():
                    self._start(command.phases, published_since_ms=prepared_ms)
                case _:
                    self._handle(command)
        return end

    def command(self, command: Command | Malformed) -> None:
        """Handle one command; repeated commands are ignored.

        A malformed one and an unreachable broker fail the command's run.
        """
        if command.command_id in self._carried_out:
            return
        self._carried_out.append(command.command_id)
        try:
            self._handle(command)
        except KafkaException as error:
            self._fail_command(command, error.args[0].str())

    def _fail_command(self, command: Command | Malformed, mistake: str) -> None:
        self._fail(command.run_id, f"The evaluator could not {command.name}: {mistake}.")

    def _handle(self, command: Command | Malformed) -> None:
        is_current = command.run_id == self.run_id
        match command:
            case Prepare():
                self._prepare(command.plan)
            case Start() if is_current:
                self._start(command.phases)
            case Measure() if is_current and isinstance(self._state, EvaluatedRun):
                self._state.evaluation.replan(command.phases)
            case Drain() if is_current and isinstance(self._state, EvaluatedRun):
                self._state.target = command.end_offsets
            case Stop() if is_current:
                self._stop()
            case Malformed(name="prepare"):
                self._fail_command(command, command.reason)
            case Malformed(name="start" | "measure" | "drain") if is_current:
                self._fail_command(command, command.reason)

    def add(self, read: ReadBatch) -> None:
        """Evaluate records of one topic or, before the run has started, measure the clock
        offset."""
        state = self._state
        if isinstance(state, PreparedRun) and state.readiness is not None:
            state.readiness.add(read.batch)
        if not isinstance(state, EvaluatedRun):
            return
        try:
            refused = state.evaluation.add(read.batch)
        except TooMuchStateError as error:
            self.fail(str(error))
            return
        except VALUE_ERRORS as error:
            self._fail_uncounted(read.batch.topic, error)
            return
        for each in refused:
            state.publication.dead_letter(read.messages[each.place], each.reason)

    def advance(self, frontier: Frontier) -> None:
        """Give the verdicts that depend on time, publish results, and report ready and drained."""
        state = self._state
        if isinstance(state, PreparedRun):
            self._say_when_ready(state)
        if not isinstance(state, EvaluatedRun):
            return
        self._follow_lag(state, frontier)
        try:
            state.evaluation.advance(frontier.input_ms, frontier.output_ms)
            state.evaluation.add_aborted(frontier.aborted)
            state.publication.publish(state.evaluation, frontier)
        except NotRepeatableError as error:
            self.fail(f"The published results of this run cannot be reproduced: {error}.")
            return
        except TooMuchStateError as error:
            self.fail(str(error))
            return
        except VALUE_ERRORS as error:
            self._fail_uncounted("its topics", error)
            return
        self._say_when_drained(state, frontier)

    def stop_reading(self) -> None:
        """Stop reading a run that cannot be evaluated."""
        if not isinstance(self._state, NoRun):
            self._state = PreparedRun(self._state.plan)

    def _follow_lag(self, state: EvaluatedRun, frontier: Frontier) -> None:
        self.lag_ms = frontier.behind_ms(self._clock(), state.started_ms)
        self._largest_lag_ms = max(self._largest_lag_ms, self.lag_ms)
        is_behind = self._largest_lag_ms > BEHIND_MS
        if self._clock() - self._told_lag_ms >= (TELL_BEHIND_MS if is_behind else TELL_LAG_MS):
            self._events.publish(
                Evaluating(
                    run_id=self.run_id,
                    lag_ms=self.lag_ms,
                    largest_lag_ms=self._largest_lag_ms,
                    cells=state.evaluation.cells(),
                )
            )
            self._told_lag_ms, self._largest_lag_ms = self._clock(), 0

    def _say_when_drained(self, state: EvaluatedRun, frontier: Frontier) -> None:
        if state.target is None or state.publication.is_behind:
            return
        is_read = reached(frontier.positions, self._shard.of(state.target))
        if not is_read or state.evaluation.open_in_measure():
            return
        state.target = None
        totals = {
            pipeline: {stage: dict(counts) for stage, counts in each.items()}
            for pipeline, each in state.publication.totals.items()
        }
        drained = Drained(
            run_id=self.run_id,
            verdicts=totals,
            came_forgotten=state.evaluation.came_forgotten,
            not_handed=state.evaluation.not_handed,
            missing={name: dict(each) for name, each in state.publication.missing.items()},
            instance_index=self._shard.index,
            instance_count=self._shard.count,
        )
        for pipeline, stage, times in state.evaluation.socket_latencies():
            self._events.publish(
                SocketLatency(
                    run_id=self.run_id,
                    pipeline=pipeline,
                    stage=stage,
                    count=times.count,
                    unknown=times.unknown,
                    latency_ns=times.figures(),
                )
            )
        self._events.publish(drained)

    def fail(self, reason: str) -> None:
        """Report that this run cannot be evaluated."""
        self._fail(self.run_id, reason)

    def _fail_uncounted(self, topic: str, error: Exception) -> None:
        """Fail the run, not the process, which would read the same records again after a
        restart."""
        log.exception("records_refused", run_id=self.run_id, topic=topic)
        self.fail(f"The evaluator cannot count the records of {topic}: {said_by(error)}.")

    def _fail(self, run_id: str, reason: str) -> None:
        log.error("run_failed", run_id=run_id, reason=reason)
        self._events.publish(Failed(run_id=run_id, reason=reason))
        if run_id == self.run_id:
            self._forget()

    def _prepare(self, plan: RunPlan, say_ready: bool = True) -> None:
        self._stop()
        release_memory()
        state = self._state = PreparedRun(plan)
        try:
            check_judged(plan, self._shard.count)
            self._topics.check(tuple(plan.start_offsets))
        except (NotJudgedError, TimestampError, KafkaUnavailableError) as error:
            self.fail(str(error))
            return
        topics = plan.request.input_topics
        inputs = {topic: plan.start_offsets[topic] for topic in topics}
        if not self._shard.of(inputs):
            self.fail(f"Evaluator {self._shard.index} has no partition: there are too few.")
        elif say_ready:
            state.readiness = Readiness(plan, self._shard, self._events)
            state.reader = self._topics.reader(inputs, topics, with_offsets=False)

    def _say_when_ready(self, state: PreparedRun) -> None:
        complaint = None if state.readiness is None else state.readiness.tell()
        if complaint:
            self.fail(complaint)
        elif complaint is not None:
            state.reader, state.readiness = None, None

    def _fail_unless_kept(self) -> None:
        """Fail a run whose first records have been deleted: counting starts from them."""
        if isinstance(self._state, NoRun):
            return  # already failed
        try:
            self._topics.check_kept(self._state.plan.start_offsets)
        except DeletedError as error:
            self.fail(str(error))

    def _start(self, phases: PhasePlan, published_since_ms: int | None = None) -> None:
        if not isinstance(self._state, PreparedRun):
            return  # already failed or running
        plan = self._state.plan
        evaluation = evaluation_of(plan, phases)
        publication = self._publication(plan, evaluation, published_since_ms)
        reader = self._topics.reader(
            plan.start_offsets,
            evaluation.inputs,
            with_offsets=plan.request.workload.publishes_pairs,
            with_input_offsets=plan.request.has_input_offsets,
            with_stamps=plan.request.socket_pipeline is not None,
        )
        self._state = EvaluatedRun(plan, evaluation, publication, reader, self._clock())
        self._told_lag_ms, self._largest_lag_ms = self._clock(), 0
        log.info("evaluation_started", run_id=self.run_id, topics=len(plan.start_offsets))

    def _publication(
        self, plan: RunPlan, evaluation: AnyEvaluation, since_ms: int | None
    ) -> Publication:
        self.live.begin(self.run_id)
        if since_ms is None:
            return Publication(self._events, self.run_id, evaluation.where, live=self.live)
        already = self._topics.published(self.run_id, self._events.name, since_ms)
        ends = self._topics.ends(plan.start_offsets)
        self._events.publish(EvaluationResumed(run_id=self.run_id))
        return Publication(
            self._events,
            self.run_id,
            evaluation.where,
            already,
            ends,
            ends_ms=self._clock(),
            live=self.live,
        )

    def _stop(self) -> None:
        """Publish the rest. A process that has not caught up cannot, because it does not know the
        difference yet."""
        state = self._state
        if isinstance(state, EvaluatedRun) and not state.publication.is_behind:
            state.publication.publish(state.evaluation)
            self._events.flush()
        self._forget()

    def _forget(self) -> None:
        self._state = NoRun()
        self.lag_ms = 0
