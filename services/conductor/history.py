"""Reads the events of a run from the bus, for a restarted conductor."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from confluent_kafka import Message

from schemas import catalogue, codec
from schemas.commands import Command, Malformed, decode
from schemas.events import BusEvent, read_event
from services.conductor.recovered_run import of_run
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import assigned_consumer
from services.runtime.replay import Spans, read_spans, spans_since

TOPICS = (catalogue.CONTROL, catalogue.LIFECYCLE, catalogue.CONCLUSIONS)
Past = Command | Malformed | BusEvent
CLOCKS_APART_MS = 60_000  # maximum difference between this machine's and the brokers' clocks


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
