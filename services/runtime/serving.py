"""Common main loop of services that follow commands: health, events, commands, clean stop."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException

from schemas.catalogue import Topic
from schemas.commands import Command, Malformed
from schemas.events import ServiceStarted, ServiceStopped
from services.runtime.events import Commands, Events, open_commands, open_events
from services.runtime.health import PortTakenError, serve_health
from services.runtime.kafka import KafkaUnavailableError, admin_client
from services.runtime.memory import limit_arenas
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings
from services.runtime.stopping import stop_on_signals
from services.runtime.topics import ensure_topics

# WAITS is set in the environment of a service started before the broker is ready; GO on its
# standard input says that the broker is ready.
WAITS, GO = "TIDEGAUGE_WAITS", b"\n"
LOOK_S = 0.1


@dataclass(frozen=True)
class Service:
    """A running service: its events, its commands, and its stop event."""

    events: Events
    commands: Commands
    stop: threading.Event

    def follow(
        self,
        handle_command: Callable[[Command | Malformed], None],
        tick: Callable[[], None],
        wait_s: Callable[[], float],
    ) -> None:
        """Handle each command until told to stop; call `tick` after each and after `wait_s()`
        without one."""
        while not self.stop.is_set():
            command = self.commands.poll(wait_s())
            if command is not None:
                handle_command(command)
            tick()


@contextmanager
def serving(
    settings: ServiceSettings, name: str, topics: Iterable[Topic] = ()
) -> Iterator[Service]:
    """Run a service under this name for the duration of the block. Publishes a lifecycle event once
    it receives commands, and another when the block ends without an error.

    topics: created first if missing. Call from the main thread. Exits with one sentence if its port
    is taken or Kafka refuses.
    """
    limit_arenas()
    stop = stop_on_signals()
    if os.environ.pop(WAITS, None) and not _told_to_go(stop):
        sys.exit()
    try:
        if topics:
            ensure_topics(admin_client(settings, name), topics, settings.replication)
        events = open_events(settings, name)
        commands = open_commands(settings, name, events)
        health = serve_health(settings.host, settings.port(name), lambda: not stop.is_set())
        events.publish(ServiceStarted(pid=os.getpid()))
        yield Service(events, commands, stop)
        events.publish(ServiceStopped(pid=os.getpid()))
        commands.close()
        health.shutdown()
    except (PortTakenError, KafkaException, KafkaUnavailableError, SecretFileError) as error:
        sys.exit(f"{name}: {error}")


def _told_to_go(stop: threading.Event) -> bool:
    """Wait for GO; False after a signal or when the parent has ended."""
    while not stop.is_set():
        if select.select([sys.stdin], [], [], LOOK_S)[0]:
            return os.read(sys.stdin.fileno(), len(GO)) == GO
    return False
