"""Publishes events about parts of a stack on the bus.

The broker may be the part that died, so nothing here waits for it: events stay in the client's
bounded queue until it responds, for five minutes at most.
"""

from schemas.events import LifecycleEvent
from services.runtime.events import Events, open_events
from services.runtime.settings import ServiceSettings

PRODUCER = "stack"
LAST_WORDS_TIMEOUT_S = 2.0


class Announcer:
    """Publishes lifecycle events of the stack. Connects at the first event: most stacks have
    none."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Otherwise the client prints repeated connection errors on the terminal.
        quiet = {**settings.kafka_properties, "log_level": "0"}
        self._settings = settings.model_copy(update={"instance": "", "kafka_properties": quiet})
        self._events: Events | None = None

    def say(self, event: LifecycleEvent) -> None:
        """Publish an event as soon as the broker accepts it."""
        if self._events is None:
            self._events = open_events(self._settings, PRODUCER)
        self._events.publish(event, flush=False)

    def serve(self) -> None:
        """Serve the client's callbacks; call periodically."""
        if self._events is not None:
            self._events.flush(0)

    def close(self) -> None:
        """Wait briefly for acknowledgements."""
        if self._events is not None:
            self._events.give_up(LAST_WORDS_TIMEOUT_S)
            self._events = None
