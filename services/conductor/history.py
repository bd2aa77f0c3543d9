"""Reads back what the bus has said of a run: for a conductor that was started again."""

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
CLOCKS_APART_MS = 60_000  # of this machine and the brokers


def read_back(settings: ConductorSettings, run_id: str, since_ms: int) -> list[tuple[str, Record]]:
    """Commands, lifecycle and conclusions of a run, of its floor and of the steps of its search,
    each with its topic; those of a topic are in order.

    since_ms: when it began, by this machine's clock; earlier ones are not looked for. Raises
    KafkaUnavailableError when they do not come.
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
