"""The run that is being evaluated: carries out commands, feeds the evaluation, publishes."""

from collections import Counter, deque
from typing import Any

import structlog
from pydantic import ValidationError

from schemas import catalogue, protocol
from schemas.protocol import Drained, LoadFinished, PhasePlan, RunPlan
from services.evaluator.evaluation import Evaluation
from services.evaluator.reader import (
    FETCHING,
    Frontier,
    MessageBatch,
    Reader,
    TimestampError,
    check_topics,
    end_offsets_by,
)
from services.evaluator.settings import EvaluatorSettings
from services.runtime.clock import now_ms
from services.runtime.events import Events
from services.runtime.kafka import KafkaUnavailableError, admin_client, assigned_consumer

log = structlog.get_logger()
REMEMBERED_COMMANDS = 1_000


class CurrentRun:
    """At most one run. Commands and batches arrive on one event loop, one at a time."""

    def __init__(self, settings: EvaluatorSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._started_ms = now_ms()
        self._carried_out: deque[str] = deque(maxlen=REMEMBERED_COMMANDS)
        self._plan: RunPlan | None = None
        self._evaluation: Evaluation | None = None
        self._target: LoadFinished | None = None
        self.totals: dict[str, dict[str, Counter[str]]] = {}
        self.reader: Reader | None = None
        self.lag_ms = 0

    @property
    def run_id(self) -> str:
        """The run that is being evaluated, or empty."""
        return self._plan.request.run_id if self._plan else ""

    def command(self, record: dict[str, Any]) -> None:
        """Carry out one `control_command` once; commands from before this process are history.

        A body that does not fit its command fails the run that the command is about.
        """
        if record["issued_at"] < self._started_ms or record["command_id"] in self._carried_out:
            return
        self._carried_out.append(record["command_id"])
        try:
            self._carry_out(record["command"], record["run_id"], record["body"])
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            reason = f"The evaluator could not {record['command']}: {field}: {first['msg']}."
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
        """Evaluate records of one topic."""
        if self._evaluation is None:
            return
        for refused in self._evaluation.add(read.batch):
            self._events.dead_letter(read.messages[refused.place], refused.reason, self.run_id)

    def advance(self, frontier: Frontier) -> None:
        """Give the verdicts that time gives, publish what is known, and say when drained."""
        if self._evaluation is None:
            return
        self.lag_ms = max(0, now_ms() - min(frontier.input_ms, frontier.output_ms))
        self._evaluation.advance(frontier.input_ms, frontier.output_ms)
        self._publish()
        target = self._target
        if target is None or not _reached(frontier.positions, target.end_offsets):
            return
        if self._evaluation.open_in_measure() == 0:
            self._target = None
            detail = Drained(verdicts={p: dict(s) for p, s in self.totals.items()})  # type: ignore[arg-type]
            self._events.lifecycle(protocol.DRAINED, self.run_id, detail=detail)

    def fail(self, reason: str) -> None:
        """Say that this run cannot be evaluated."""
        self._fail(self.run_id, reason)

    def _fail(self, run_id: str, reason: str) -> None:
        log.error("run_failed", run_id=run_id, reason=reason)
        self._events.lifecycle(protocol.FAILED, run_id, detail={"reason": reason})
        if run_id == self.run_id:
            self._stop()

    def _prepare(self, plan: RunPlan) -> None:
        self._stop()
        self._plan = plan
        consumer = assigned_consumer(self._settings, "evaluator-check")
        try:
            check_topics(consumer, tuple(plan.start_offsets))
        except (TimestampError, KafkaUnavailableError) as error:
            self.fail(str(error))
            return
        finally:
            consumer.close()
        self._events.lifecycle(protocol.READY, self.run_id)

    def _start(self, phases: PhasePlan) -> None:
        assert self._plan is not None
        self._evaluation = Evaluation(self._plan, phases)
        self.totals = {}
        for pipeline, stage in self._evaluation.where.values():
            self.totals.setdefault(pipeline, {})[stage] = Counter(
                dict.fromkeys(protocol.VERDICTS, 0)
            )
        consumer = assigned_consumer(self._settings, "evaluator", **FETCHING)
        ends = end_offsets_by(admin_client(self._settings, "evaluator"))
        self.reader = Reader(consumer, ends, self._plan.start_offsets)
        log.info("evaluation_started", run_id=self.run_id, topics=len(self._plan.start_offsets))

    def _publish(self) -> None:
        assert self._evaluation is not None
        for topic, fields in self._evaluation.take_events():
            if topic == catalogue.VERDICTS and fields["phase"] == "measure":
                counts = {verdict: fields[verdict] for verdict in protocol.VERDICTS}
                self.totals[fields["pipeline"]][fields["stage"]].update(counts)
            self._events.publish(topic, self.run_id, **fields)

    def _stop(self) -> None:
        if self._evaluation is not None:
            self._publish()
            self._events.flush()
        self.reader = None
        self._plan, self._evaluation, self._target = None, None, None
        self.lag_ms = 0


def _reached(positions: dict[str, tuple[int, ...]], ends: dict[str, tuple[int, ...]]) -> bool:
    return all(
        have >= want
        for topic, offsets in ends.items()
        for have, want in zip(positions[topic], offsets, strict=True)
    )
