"""Common main loop of services that follow commands: health, events, commands, clean stop.

`/health/live`, `/health/ready` and `/metrics` are on loopback by default. The evaluator (Faust) and
the store have their own web servers and serve the same paths there.
"""

import errno
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from confluent_kafka import KafkaException
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from schemas.catalogue import Topic
from schemas.commands import Command, Malformed
from schemas.events import ServiceStarted, ServiceStopped
from services.runtime.events import Commands, Events, open_commands, open_events
from services.runtime.hosts import LOOPBACK, is_known
from services.runtime.kafka import KafkaUnavailableError, admin_client, ensure_topics
from services.runtime.process import limit_arenas, stop_on_signals
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings

MOST_CONNECTIONS: Final = 16
SILENT_S: Final = 5.0
HEALTH_LOOK_S: Final = 5.0
# WAITS is set in the environment of a service started before the broker is ready; GO on its
# standard input says that the broker is ready.
WAITS, GO = "TIDEGAUGE_WAITS", b"\n"
LOOK_S = 0.1
HTML: Final = "text/html; charset=utf-8"
NO_SCRIPTS: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


class PortTakenError(OSError):
    """A service cannot listen on its port, for example because another process does."""


def serve_health(
    host: str,
    port: int,
    is_ready: Callable[[], bool],
    silent_s: float = SILENT_S,
    page: Callable[[], str] | None = None,
) -> ThreadingHTTPServer:
    """Serve health and metrics in a daemon thread. Raises PortTakenError. silent_s: time in which a
    client must send its request. page: the HTML at `/`, without scripts; None for none. Metrics are
    in the format of OpenMetrics for a client that asks for it, else in Prometheus' text format.

    On loopback, requests must name this machine or its address as Host: see hosts.py.
    """
    names = LOOPBACK | {host}

    class Handler(BaseHTTPRequestHandler):
        timeout = silent_s

        def do_GET(self) -> None:
            if host in LOOPBACK and not is_known(self.headers.get("Host", ""), names, True):
                self._answer(403, b"this is not a name of this machine\n")
            elif self.path == "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._answer(200, encode(REGISTRY), kind)
            elif self.path == "/" and page is not None:
                self._answer(200, page().encode(), HTML)
            elif self.path == "/health/live":
                self._answer(200, b"live\n")
            elif self.path == "/health/ready":
                ready = is_ready()
                self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready\n")
            else:
                self._answer(404, b"not found\n")

        def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("X-Content-Type-Options", "nosniff")
            if kind == HTML:
                self.send_header("Content-Security-Policy", NO_SCRIPTS)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: there is a probe every second."""

    try:
        server = _HealthServer((host, port), Handler)
    except OSError as error:
        problem = "is taken" if error.errno == errno.EADDRINUSE else "cannot be used"
        raise PortTakenError(f"port {port} on {host} {problem}: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server


class SleepingServer(ThreadingHTTPServer):
    """Sleeps until a client connects; `shutdown` wakes it. `serve_forever` of the library wakes up
    twice a second to look for the request to shut down."""

    def serve_forever(self, poll_interval: float = HEALTH_LOOK_S) -> None:
        """Serve until `shutdown`."""
        super().serve_forever(poll_interval)

    def shutdown(self) -> None:
        """Stop listening, which ends the wait for clients, and serving."""
        with suppress(OSError):  # systems that do not shut down listening sockets: HEALTH_LOOK_S
            self.socket.shutdown(socket.SHUT_RDWR)
        super().shutdown()


class _HealthServer(SleepingServer):
    """Has at most MOST_CONNECTIONS. A new connection evicts the oldest, so idle connections block
    nobody."""

    # With the default of 5, a burst of clients is delayed by a second.
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, None] = {}  # oldest first
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        for oldest in list(self._open)[: 1 - MOST_CONNECTIONS]:
            self._open.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that was served or broke off."""
        self._open.pop(request, None)
        super().shutdown_request(request)


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
    if os.environ.pop(WAITS, None) and not _told_to_go(stop, sys.stdin.fileno()):
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


def _told_to_go(stop: threading.Event, parent: int) -> bool:
    """Wait for GO on a file descriptor; False after a signal or when the parent has ended."""
    while not stop.is_set():
        if select.select([parent], [], [], LOOK_S)[0]:
            return os.read(parent, len(GO)) == GO
    return False
