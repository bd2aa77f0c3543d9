"""The run that is being evaluated: carries out commands, feeds the evaluation, publishes."""

from collections import deque
from typing import Any

import structlog
from confluent_kafka import KafkaException
from pydantic import ValidationError

from schemas import protocol
from schemas.codec import said_by
from schemas.mistakes import first_mistake
from schemas.protocol import Drained, LoadFinished, PhasePlan, RunPlan
from services.evaluator.column_mapping import NotJudgedError
from services.evaluator.columns import TooManyNamesError
from services.evaluator.evaluation import Evaluation, check_judged, domain_of
from services.evaluator.history import read_published
from services.evaluator.process import forget_run
from services.evaluator.published import NotRepeatableError
from services.evaluator.publishing import Publication
from services.evaluator.reader import (
    FETCHING,
    DeletedError,
    Frontier,
    MessageBatch,
    Reader,
    TimestampError,
    check_kept,
    check_topics,
    end_offsets_by,
)
from services.evaluator.readiness import Readiness
from services.evaluator.settings import EvaluatorSettings
from services.evaluator.share import Offsets, Share, reached
from services.runtime.clock import now_ms
from services.runtime.events import RECORD_ERRORS, Events
from services.runtime.kafka import (
    KafkaUnavailableError,
    NoTopicError,
    admin_client,
    assigned_consumer,
    end_offsets,
)
from services.runtime.replay import read_commands, unfinished

log = structlog.get_logger()
REMEMBERED_COMMANDS = 1_000
TELL_LAG_MS = 10_000


class CurrentRun:
    """At most one run. Commands and batches arrive on one event loop, one at a time."""

    def __init__(self, settings: EvaluatorSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._carried_out: deque[str] = deque(maxlen=REMEMBERED_COMMANDS)
        self._plan: RunPlan | None = None
        self._evaluation: Evaluation | None = None
        self._target: LoadFinished | None = None
        self.publication: Publication | None = None
        self.reader: Reader | None = None
        self.lag_ms = 0
        self._largest_lag_ms = 0
        self._told_lag_ms = 0
        self._started_ms = 0
        self._share = Share(settings.evaluator_instance_index, settings.evaluator_instance_count)
        self._readiness: Readiness | None = None

    @property
    def run_id(self) -> str:
        """The run that is being evaluated, or empty."""
        return self._plan.request.run_id if self._plan else ""

    def resume(self) -> int:
        """Take up the run that a process before this one has left, if there is one.

        Returns the offset of `control.runs` from which on commands are to be carried out: all
        before it are known here. Raises KafkaException or KafkaUnavailableError when the broker
        does not answer: who does not know what was published must not publish.
        """
        try:
            commands, end = read_commands(self._settings, "evaluator-history")
        except NoTopicError:  # it is made when the first conductor starts
            return 0
        self._carried_out.extend(one["command_id"] for one in commands)
        mine = unfinished(commands, now_ms())
        if mine:
            log.info("run_resumed", run_id=mine[0]["run_id"], commands=len(mine))
        try:
            self._take_up(mine)
        except RECORD_ERRORS as error:
            log.exception("run_not_resumed", run_id=mine[0]["run_id"])
            self._fail_command(mine[0], said_by(error))
        return end

    def _take_up(self, mine: list[dict[str, Any]]) -> None:
        is_started = any(one["command"] == "start" for one in mine)
        for one in mine:
            if one["command"] == "prepare":
                self._prepare(RunPlan.model_validate_json(one["body"]), say_ready=not is_started)
                self._fail_unless_kept()
            elif one["command"] == "start":
                phases = PhasePlan.model_validate_json(one["body"])
                self._start(phases, published_since_ms=mine[0]["issued_at"])
            else:
                self._obey(one)

    def command(self, record: dict[str, Any]) -> None:
        """Carry out one `control_command` once.

        A body that does not fit its command fails the run that the command is about, as does a
        broker that does not answer.
        """
        if record["command_id"] in self._carried_out:
            return
        self._carried_out.append(record["command_id"])
        self._obey(record)

    def _obey(self, record: dict[str, Any]) -> None:
        try:
            self._carry_out(record["command"], record["run_id"], record["body"])
        except ValidationError as error:
            self._fail_command(record, first_mistake(error))
        except KafkaException as error:
            self._fail_command(record, error.args[0].str())
        except RECORD_ERRORS as error:
            log.exception("command_refused", command_id=record["command_id"])
            self._fail_command(record, said_by(error))

    def _fail_command(self, record: dict[str, Any], mistake: str) -> None:
        reason = f"The evaluator could not {record['command']}: {mistake}."
        self._fail(record["run_id"], reason)

    def _carry_out(self, name: str, run_id: str, body: str) -> None:
        if name == "prepare":
            self._prepare(RunPlan.model_validate_json(body))
        elif run_id != self.run_id:
            return
        elif name == "start":
            self._start(PhasePlan.model_validate_json(body))
        elif name == "drain":
            self._target = LoadFinished.model_validate_json(body)
        elif name == "stop":
            self._stop()

    def add(self, read: MessageBatch) -> None:
        """Evaluate records of one topic, or look at the clocks before the run has started."""
        if self._readiness is not None:
            self._readiness.add(read.batch)
            return
        if self._evaluation is None or self.publication is None:
            return
        try:
            lost = self._evaluation.add(read.batch)
        except TooManyNamesError as error:
            self.fail(str(error))
            return
        except RECORD_ERRORS as error:
            self._fail_uncounted(read.batch.topic, error)
            return
        for refused in lost:
            self.publication.dead_letter(read.messages[refused.place], refused.reason)

    def advance(self, frontier: Frontier) -> None:
        """Give the verdicts that time gives, publish what is known, and say when ready and when
        drained."""
        if self._readiness is not None:
            self._say_when_ready(self._readiness)
            return
        if self._evaluation is None or self.publication is None:
            return
        self._follow_lag(self._evaluation, frontier)
        try:
            self._evaluation.advance(frontier.input_ms, frontier.output_ms)
            self.publication.publish(self._evaluation, frontier.positions)
        except NotRepeatableError as error:
            self.fail(f"What was published of this run cannot be repeated: {error}.")
            return
        except RECORD_ERRORS as error:
            self._fail_uncounted("its topics", error)
            return
        self._say_when_drained(self._evaluation, self.publication, frontier)

    def _follow_lag(self, evaluation: Evaluation, frontier: Frontier) -> None:
        self.lag_ms = frontier.behind_ms(now_ms(), self._started_ms)
        self._largest_lag_ms = max(self._largest_lag_ms, self.lag_ms)
        if now_ms() - self._told_lag_ms >= TELL_LAG_MS:
            detail = {
                "lag_ms": self.lag_ms,
                "largest_lag_ms": self._largest_lag_ms,
                "cells": evaluation.cells(),
            }
            self._events.lifecycle(protocol.EVALUATING, self.run_id, detail=detail)
            self._told_lag_ms, self._largest_lag_ms = now_ms(), 0

    def _say_when_drained(
        self, evaluation: Evaluation, publication: Publication, frontier: Frontier
    ) -> None:
        target = self._target
        if target is None or publication.is_behind:
            return
        is_read = reached(frontier.positions, self._share.of(target.end_offsets))
        if is_read and evaluation.open_in_measure() == 0:
            self._target = None
            totals = {
                p: {s: dict(v) for s, v in one.items()} for p, one in publication.totals.items()
            }
            drained = Drained(
                verdicts=totals,
                came_forgotten=evaluation.came_forgotten,
                instance_index=self._share.index,
                instance_count=self._share.count,
            )
            self._events.lifecycle(protocol.DRAINED, self.run_id, detail=drained)

    def fail(self, reason: str) -> None:
        """Say that this run cannot be evaluated."""
        self._fail(self.run_id, reason)

    def _fail_uncounted(self, topic: str, error: Exception) -> None:
        """Records that cannot be counted end the run and not this process, which would read them
        again when it starts again."""
        log.exception("records_refused", run_id=self.run_id, topic=topic)
        self.fail(f"The evaluator cannot count the records of {topic}: {said_by(error)}.")

    def _fail(self, run_id: str, reason: str) -> None:
        log.error("run_failed", run_id=run_id, reason=reason)
        self._events.lifecycle(protocol.FAILED, run_id, detail={"reason": reason})
        if run_id == self.run_id:
            self._forget()

    def _prepare(self, plan: RunPlan, say_ready: bool = True) -> None:
        self._stop()
        forget_run()
        self._plan = plan
        consumer = assigned_consumer(self._settings, "evaluator-check")
        try:
            check_judged(plan, self._share.count)
            check_topics(consumer, tuple(plan.start_offsets))
        except (NotJudgedError, TimestampError, KafkaUnavailableError) as error:
            self.fail(str(error))
            return
        finally:
            consumer.close()
        if not self._share.of(plan.start_offsets):
            self.fail(f"No partition is left for evaluator {self._share.index}: there are too few.")
        elif say_ready:
            self._readiness = Readiness(plan, self._share, self._events)
            topics = domain_of(plan).topics
            inputs = {topic: plan.start_offsets[topic] for topic in topics}
            self.reader = self._open_reader(inputs, topics, with_places=False)

    def _say_when_ready(self, readiness: Readiness) -> None:
        complaint = readiness.tell()
        if complaint:
            self.fail(complaint)
        elif complaint is not None:
            self.reader, self._readiness = None, None

    def _open_reader(self, offsets: Offsets, inputs: tuple[str, ...], with_places: bool) -> Reader:
        consumer = assigned_consumer(self._settings, "evaluator", **FETCHING)
        ends = end_offsets_by(admin_client(self._settings, "evaluator"))
        return Reader(consumer, ends, offsets, inputs, share=self._share, with_places=with_places)

    def _fail_unless_kept(self) -> None:
        """Fail a run whose first records are gone: it is counted again from them."""
        if self._plan is None:
            return  # it has failed already
        consumer = assigned_consumer(self._settings, "evaluator-check")
        try:
            check_kept(consumer, self._share.of(self._plan.start_offsets))
        except DeletedError as error:
            self.fail(str(error))
        finally:
            consumer.close()

    def _start(self, phases: PhasePlan, published_since_ms: int | None = None) -> None:
        if self._plan is None or self._evaluation is not None:
            return  # it has failed already, or runs already
        self._evaluation = Evaluation(self._plan, phases)
        self._readiness = None
        self._started_ms = self._told_lag_ms = now_ms()
        self._largest_lag_ms = 0
        self.publication = self._publication(self._evaluation, published_since_ms)
        with_pairs = self._plan.request.workload.publishes_pairs
        self.reader = self._open_reader(
            self._plan.start_offsets, self._evaluation.inputs, with_places=with_pairs
        )
        log.info("evaluation_started", run_id=self.run_id, topics=len(self._plan.start_offsets))

    def _publication(self, evaluation: Evaluation, since_ms: int | None) -> Publication:
        assert self._plan is not None
        if since_ms is None:
            return Publication(self._events, self.run_id, evaluation.where)
        already = read_published(self._settings, self.run_id, self._events.name, since_ms)
        consumer = assigned_consumer(self._settings, "evaluator-ends")
        try:
            ends = {topic: end_offsets(consumer, topic) for topic in self._plan.start_offsets}
        finally:
            consumer.close()
        self._events.lifecycle(protocol.EVALUATION_RESUMED, self.run_id)
        mine = self._share.of(ends)
        return Publication(self._events, self.run_id, evaluation.where, already, mine)

    def _stop(self) -> None:
        """Publish what is left; one that has not caught up cannot know what that is."""
        publication, evaluation = self.publication, self._evaluation
        if publication is not None and evaluation is not None and not publication.is_behind:
            publication.publish(evaluation, {})
            self._events.flush()
        self._forget()

    def _forget(self) -> None:
        self.reader, self.publication, self._readiness = None, None, None
        self._plan, self._evaluation, self._target = None, None, None
        self.lag_ms = 0
