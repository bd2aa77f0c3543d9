"""What every service that obeys commands is: health, events, commands, and a clean stop."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaException

from schemas import protocol
from schemas.catalogue import Topic
from services.runtime.events import RECORD_ERRORS, Commands, Events, open_commands, open_events
from services.runtime.health import PortTakenError, serve_health
from services.runtime.kafka import KafkaUnavailableError, admin_client
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings
from services.runtime.stopping import stop_on_signals
from services.runtime.topics import ensure_topics

log = structlog.get_logger()
# In the environment of a service that is started before the broker is ready; GO on its standard
# input says that it is.
WAITS, GO = "TIDEGAUGE_WAITS", b"\n"
LOOK_S = 0.1


@dataclass(frozen=True)
class Service:
    """A service that is up: where it publishes, what it is told, and when it should end."""

    events: Events
    commands: Commands
    stop: threading.Event

    def follow(
        self,
        handle_command: Callable[[dict[str, Any]], None],
        tick: Callable[[], None],
        wait_s: Callable[[], float],
    ) -> None:
        """Handle each command, and `tick` after it or after `wait_s()` without one, until told to
        stop. A command that makes `handle_command` fail by its values becomes a dead letter."""
        while not self.stop.is_set():
            command = self.commands.poll(wait_s())
            if command is not None:
                try:
                    handle_command(command)
                except RECORD_ERRORS as error:
                    log.exception("command_refused", command_id=command["command_id"])
                    self.commands.refuse(error)
            tick()


@contextmanager
def serving(
    settings: ServiceSettings, name: str, topics: Iterable[Topic] = ()
) -> Iterator[Service]:
    """Serve under this name while the block runs: it is announced once it hears commands, and
    again when the block has ended without an error.

    topics: those that are created first where they are missing. Call from the main thread. Ends
    the process with one sentence when its port is taken or Kafka refuses.
    """
    stop = stop_on_signals()
    if os.environ.pop(WAITS, None) and not _told_to_go(stop):
        sys.exit()
    try:
        if topics:
            ensure_topics(admin_client(settings, name), topics, settings.replication)
        events = open_events(settings, name)
        commands = open_commands(settings, name, events)
        health = serve_health(settings.host, settings.port(name), lambda: not stop.is_set())
        events.lifecycle(protocol.SERVICE_STARTED, detail={"pid": os.getpid()})
        yield Service(events, commands, stop)
        events.lifecycle(protocol.SERVICE_STOPPED, detail={"pid": os.getpid()})
        commands.close()
        health.shutdown()
    except (PortTakenError, KafkaException, KafkaUnavailableError, SecretFileError) as error:
        sys.exit(f"{name}: {error}")


def _told_to_go(stop: threading.Event) -> bool:
    """Wait for GO; False where a signal came instead, or who would say it is gone."""
    while not stop.is_set():
        if select.select([sys.stdin], [], [], LOOK_S)[0]:
            return os.read(sys.stdin.fileno(), len(GO)) == GO
    return False
