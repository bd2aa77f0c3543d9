"""Concludes runs that a killed conductor left, from their events on the bus."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import structlog
from confluent_kafka import Message

from schemas import catalogue, codec
from schemas.commands import Command, Malformed, Stop, decode
from schemas.events import BusEvent, RateJudged, read_event
from services.conductor.recovered_run import RecoveredRun, of_run
from services.conductor.run_verdict import RunVerdict
from services.conductor.search.search_events import result_detail
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events
from services.runtime.kafka import assigned_consumer
from services.runtime.replay import Spans, read_spans, spans_since

TOPICS = (catalogue.CONTROL, catalogue.LIFECYCLE, catalogue.CONCLUSIONS)
Past = Command | Malformed | BusEvent
CLOCKS_APART_MS = 60_000  # maximum difference between this machine's and the brokers' clocks
KILLED = "The conductor exited during the run."
log = structlog.get_logger()


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
