"""Concludes runs that a killed conductor left, from their events on the bus.

past = recovered_run(run_id, history)
past.conclusion, past.open_steps, past.can_go_on, past.so_far
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from schemas import catalogue, codec, protocol
from schemas.commands import CancelRun, Command, Malformed, Stop, decode
from schemas.events import (
    BusEvent,
    Concluded,
    Conclusion,
    PhaseStarted,
    RateJudged,
    RunJudged,
    RunRequested,
    SearchStepJudged,
    SearchStepStarted,
    read_event,
)
from schemas.protocol import RunRequest, floor_run_id
from services.conductor.run_verdict import RunVerdict
from services.conductor.search.bisection import Done, SoFar, result_detail
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events, Spans, read_spans, spans_since
from services.runtime.kafka import assigned_consumer
from services.runtime.logs import get_log

STEP = re.compile(rf"(.+)-step-\d+(?:{protocol.WARMING})?")
MOST_LOST = 3  # unjudged steps per search, in case one always kills the conductor
TOPICS = (catalogue.CONTROL, catalogue.LIFECYCLE, catalogue.CONCLUSIONS)
Past = Command | Malformed | BusEvent
CLOCKS_APART_MS = 60_000  # maximum difference between this machine's and the brokers' clocks
KILLED = "The conductor exited during the run."
log = get_log()


@dataclass
class RecoveredRun:
    """One run. request: None if it was not announced yet;
    requested_ms: when it was announced.

    steps: judged steps of its search, the last at judged_ms; begun: ids of all steps; has_floor:
    its floor was requested; concluded: ids of concluded runs among them. is_carried_out: the run
    itself has begun; for a search, the one at the rate found. is_cancelled: a user has cancelled
    it. has_result: the result of the search was published. conclusion: that of the run, announced
    to those waiting for it.
    """

    run_id: str
    request: RunRequest | None = None
    requested_ms: int = 0
    steps: dict[str, Done] = field(default_factory=dict)
    judged_ms: int = 0
    begun: list[str] = field(default_factory=list)
    has_floor: bool = False
    concluded: set[str] = field(default_factory=set)
    is_carried_out: bool = False
    is_cancelled: bool = False
    has_result: bool = False
    conclusion: RunVerdict | None = None
    is_announced: bool = False

    @property
    def open_steps(self) -> list[str]:
        """Its floor and search steps that are not concluded."""
        floor = [floor_run_id(self.run_id)] if self.has_floor else []
        return [step for step in (*floor, *self.begun) if step not in self.concluded]

    @property
    def so_far(self) -> SoFar:
        """Its search: time between steps counts as spent, time since the last step does not."""
        spent_ms = self.judged_ms - self.requested_ms if self.steps else 0
        warmed = {f"{step}{protocol.WARMING}" for step in self.begun}
        return SoFar(
            steps=tuple(self.steps.values()),
            lost=tuple(step for step in self.begun if step not in {*self.steps, *warmed}),
            spent_s=spent_ms / 1000,
        )

    @property
    def can_go_on(self) -> bool:
        """Whether it is a search that has not found its rate. A run that has begun cannot be
        repeated: what it published would be counted twice."""
        is_search = self.request is not None and self.request.workload.search is not None
        ended = self.conclusion or self.is_carried_out or self.is_cancelled or self.has_result
        return is_search and not ended and len(self.so_far.lost) <= MOST_LOST


def recovered_run(run_id: str, history: Iterable[Command | Malformed | BusEvent]) -> RecoveredRun:
    """The state of a run from its events and those that are `of_run`."""
    past = RecoveredRun(run_id)
    for event in history:
        if isinstance(event, Conclusion):
            _add_conclusion(past, event)
            continue
        if event.run_id != run_id:
            past.has_floor |= event.run_id == floor_run_id(run_id)
            continue
        match event:
            case CancelRun():
                past.is_cancelled = True
            case Concluded():
                past.is_announced = True
            case RunRequested():
                past.request, past.requested_ms = event.request, event.time
            case SearchStepStarted():
                past.begun.append(event.step_run_id)
            case PhaseStarted():
                past.is_carried_out = True
    return past


def search_of(run_id: str) -> str:
    """The run that could have a run as a search step, by its id; empty if none. A watch may have a
    name like a step, but its runs end with a time."""
    match = STEP.fullmatch(run_id)
    return match[1] if match else ""


def of_run(run_id: str, other: str) -> bool:
    """Whether another id is that run, its floor or a step of its search."""
    return run_id in (other, search_of(other)) or other == floor_run_id(run_id)


def _add_conclusion(past: RecoveredRun, event: Conclusion) -> None:
    match event:
        case RunJudged() if event.run_id == past.run_id:
            past.conclusion = RunVerdict(event.clean, event.invalid_reasons, event.detail)
        case RunJudged():
            past.concluded.add(event.run_id)
        case SearchStepJudged():
            past.steps[event.step_run_id] = Done(
                event.rate_per_second,
                event.long,
                event.reasons,
                event.undecided,
                event.limited_by,
                event.step,
                event.steady,
                event.moving,
                event.warm_up_s,
                event.by_input_alone,
                event.processed,
                event.cpu_share,
                event.generator_us,
                event.cold,
                event.measured_s,
            )
            past.judged_ms = event.time
        case RateJudged():
            past.has_result = True


def read_back(settings: ConductorSettings, run_id: str, since_ms: int) -> list[Past]:
    """Commands, lifecycle and conclusions of a run, its floor and its search steps; ordered within
    a topic.

    since_ms: when it began, by this machine's clock; earlier events are ignored. Raises
    KafkaUnavailableError if they do not arrive.
    """
    consumer = assigned_consumer(settings, "conductor-history", **{"fetch.min.bytes": 1})
    try:
        spans: Spans = {}
        for topic in TOPICS:
            spans.update(spans_since(consumer, topic, max(0, since_ms - CLOCKS_APART_MS)))
        events = _decoded(read_spans(consumer, spans))
        return [event for event in events if of_run(run_id, event.run_id)]
    finally:
        consumer.close()


def _decoded(messages: Iterable[Message]) -> Iterator[Past]:
    for message in messages:
        topic, value = message.topic(), message.value()
        with suppress(codec.DecodeError):  # the topic's owner writes the dead letter
            yield decode(value) if topic == catalogue.CONTROL else read_event(topic, value)


def conclude_orphan(past: RecoveredRun, events: Events) -> None:
    """Conclude a run, its floor and its search steps as not valid unless they are concluded, and
    stop what was started for them. Published results and search results are kept."""
    conclude_steps(past, events)
    if past.conclusion is not None:
        if not past.is_announced:
            past.conclusion.announce(events, past.run_id)
        return
    unmeasured: dict[str, Any] = {"clean": False, "verdicts": {}}
    if past.request is not None and past.request.workload.search is not None:
        unmeasured["search"] = result_detail(past.request, past.so_far)
        if not past.has_result:
            result = unmeasured["search"]
            events.publish(RateJudged(run_id=past.run_id, invalid_reasons=(KILLED,), **result))
    _end(past.run_id, unmeasured, events)


def conclude_steps(past: RecoveredRun, events: Events) -> None:
    """The same, only for its floor and its search steps."""
    for step in past.open_steps:
        _end(step, {"clean": False, "verdicts": {}}, events)


def _end(run_id: str, detail: dict[str, Any], events: Events) -> None:
    events.send(Stop(run_id=run_id, reason=KILLED))
    RunVerdict(False, (KILLED,), detail).tell(events, run_id)
    log.warning("accounted_for", run_id=run_id)
