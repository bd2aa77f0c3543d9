"""Reads the events of a run from the bus, for a restarted conductor."""

from schemas import catalogue
from services.conductor.recovered_run import of_run
from services.conductor.settings import ConductorSettings
from services.runtime.kafka import assigned_consumer
from services.runtime.replay import Record, Spans, decoded, read_spans, spans_since

TOPICS = {
    "control_command": catalogue.CONTROL,
    "results_lifecycle": catalogue.LIFECYCLE,
    "results_conclusions": catalogue.CONCLUSIONS,
}
CLOCKS_APART_MS = 60_000  # maximum difference between this machine's and the brokers' clocks


def read_back(settings: ConductorSettings, run_id: str, since_ms: int) -> list[tuple[str, Record]]:
    """Commands, lifecycle and conclusions of a run, its floor and its search steps, each with its
    topic; ordered within a topic.

    since_ms: when it began, by this machine's clock; earlier events are ignored. Raises
    KafkaUnavailableError if they do not arrive.
    """
    consumer = assigned_consumer(settings, "conductor-history", **{"fetch.min.bytes": 1})
    try:
        spans: Spans = {}
        for topic in TOPICS.values():
            spans.update(spans_since(consumer, topic, max(0, since_ms - CLOCKS_APART_MS)))
        return [
            (TOPICS[name], record)
            for name, record in decoded(read_spans(consumer, spans))
            if of_run(run_id, record["run_id"])
        ]
    finally:
        consumer.close()
