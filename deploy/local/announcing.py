"""Tell the bus what happens to the parts of a stack.

The broker may be the part that died, so nothing here waits for it: events stay in the client's
bounded queue until it answers again, for five minutes at most.
"""

import json

from schemas import catalogue
from services.runtime.events import Events, open_events
from services.runtime.settings import ServiceSettings

PRODUCER = "stack"
LAST_WORDS_TIMEOUT_S = 2.0


class Announcer:
    """Publishes lifecycle events of the stack. Connects at the first one: most stacks need none."""

    def __init__(self, settings: ServiceSettings) -> None:
        # The client would print on the terminal that the broker is gone, many times.
        quiet = {**settings.kafka_properties, "log_level": "0"}
        self._settings = settings.model_copy(update={"instance": "", "kafka_properties": quiet})
        self._events: Events | None = None

    def say(self, event: str, **detail: object) -> None:
        """Publish an event as soon as the broker takes it."""
        if self._events is None:
            self._events = open_events(self._settings, PRODUCER)
        self._events.publish(catalogue.LIFECYCLE, "", event=event, detail=json.dumps(detail))

    def serve(self) -> None:
        """Let the client do its work; call now and then."""
        if self._events is not None:
            self._events.flush(0)

    def close(self) -> None:
        """Wait a moment for what was not acknowledged yet."""
        if self._events is not None:
            self._events.give_up(LAST_WORDS_TIMEOUT_S)
            self._events = None
