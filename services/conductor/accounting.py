"""Accounts for a run during which the conductor was killed: nobody else will conclude it."""

from typing import Any

import structlog
from confluent_kafka import TopicPartition

from schemas import catalogue, codec
from schemas.protocol import Stop
from services.conductor.conclusion import Conclusion
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events
from services.runtime.kafka import assigned_consumer, end_offsets

log = structlog.get_logger()
LOOKED_BACK = 2_000  # conclusions; a run has one, or a few dozen when it searches
KILLED = "The conductor was ended while the run was going on."


def account_for(run_id: str, settings: ConductorSettings, events: Events) -> bool:
    """Conclude a run as not valid, and stop what was started for it, unless it is concluded.

    What was measured stays. Returns whether it was open.
    """
    if _concluded(run_id, settings):
        return False
    events.command("stop", run_id, Stop(reason=KILLED))
    unmeasured: dict[str, Any] = {"clean": False, "verdicts": {}}
    Conclusion(False, (KILLED,), unmeasured).tell(events, run_id)
    log.warning("accounted_for", run_id=run_id)
    return True


def _concluded(run_id: str, settings: ConductorSettings) -> bool:
    """Whether a conclusion of the run is among the last LOOKED_BACK."""
    consumer = assigned_consumer(settings, "conductor-accounting", **{"fetch.min.bytes": 1})
    try:
        end = end_offsets(consumer, catalogue.CONCLUSIONS)[0]
        begin = max(0, end - LOOKED_BACK)
        consumer.assign([TopicPartition(catalogue.CONCLUSIONS, 0, begin)])
        while begin < end:
            for message in consumer.consume(LOOKED_BACK, 0.5):
                begin = max(begin, (message.offset() or 0) + 1)
                if not message.error() and _is_of(message.value(), run_id):
                    return True
        return False
    finally:
        consumer.close()


def _is_of(value: bytes | None, run_id: str) -> bool:
    try:
        record = codec.decode(value)[1]
    except codec.DecodeError:
        return False
    return bool(record["run_id"] == run_id and record["kind"] == "run")
