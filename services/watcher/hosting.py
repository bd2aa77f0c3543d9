"""Several watches of small topics in one process: `python -m services.watcher.hosting NAME`, which
the watcher starts. It names the watches on standard input, a line each:

    watch NAME      begin or resume a watch
    conclude NAME   only conclude what is left of one
    stop NAME       stop it; the next process resumes

Each watch runs in a thread of its own, with a client that reads for it alone, so one that waits for
its cluster, or ends with an error, concerns no other. They share the client of the bus, and of each
cluster the client that asks for ends. On standard output is of each watch what its own process
would write there, after its name, and a line when it has ended.

The process ends when its standard input is closed, or at SIGTERM.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from services.definitions.requests import environment
from services.runtime.kafka import SILENT, event_producer
from services.runtime.logs import bind_log, configure_logs, get_log
from services.runtime.process import expect_batches, limit_arenas, release_memory
from services.runtime.settings import ServiceSettings, load_settings
from services.watcher.position import PublishedSince, ResultTopics
from services.watcher.process import CountedEvents, WatchContext, run_until
from services.watcher.reading import READING
from services.watcher.seats import ENDED, MOST_REASON_BYTES, OF, SHOWN
from services.watcher.watching import CountingSink, Watching, WatchPace

PACE: Final = WatchPace(step_s=2.0, save_s=30.0, show_s=10.0, read_s=1.0)
# Records that are fetched less often: fewer wake-ups, a second more until they are judged.
SMALL: Final[Mapping[str, Any]] = {
    **READING,
    "fetch.wait.max.ms": 1_000,
    "queued.min.messages": 1_000,
    "queued.max.messages.kbytes": 1_024,
}
MOST_OPENING: Final = 4  # watches at a time, as each then reads back what it remembers
CLOSE_S: Final = 30.0
POLL_S: Final = 0.1
log = get_log()


class SharedClients:
    """The clients and the output that the watches of a process share."""

    def __init__(self, settings: ServiceSettings, process: str) -> None:
        self.settings, self.process = settings, process
        self.results = SharedResults(ResultTopics(settings))
        self.opening = threading.BoundedSemaphore(MOST_OPENING)
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._admins: dict[str, AdminClient] = {}
        self._is_settled = False
        self._environment: dict[str, Any] = {}

    def producer(self) -> Producer:
        """The client of the bus."""
        with self._lock:
            self._producer = self._producer or event_producer(self.settings, self.process)
            return self._producer

    def admin(self, client: dict[str, Any]) -> AdminClient:
        """The client of a cluster and a login. Raises KafkaException, ValueError."""
        mine = client | {"client.id": f"tidegauge-{self.process}"}
        login = json.dumps({k: v for k, v in mine.items() if k != "logger"}, sort_keys=True)
        with self._lock:
            if login not in self._admins:
                self._admins[login] = AdminClient(mine | SILENT)
            return self._admins[login]

    def environment(self) -> dict[str, Any]:
        """Versions and the machine, looked up once."""
        with self._lock:
            self._environment = self._environment or environment()
            return self._environment

    def settle(self) -> None:
        """Tune the process once, when it has its first watch."""
        with self._lock:
            if not self._is_settled:
                expect_batches()
            self._is_settled = True

    def write(self, name: str, line: bytes) -> None:
        """Write a line of a watch for the parent, whole."""
        with self._lock:
            sys.stdout.buffer.write(name.encode() + OF + line + b"\n")
            sys.stdout.buffer.flush()


class SharedResults:
    """The topics of results, asked for one watch at a time by clients that stay."""

    def __init__(self, results: ResultTopics) -> None:
        self._results = results
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def ends(self) -> list[tuple[str, int, int]]:
        """As `ResultTopics.ends`."""
        with self._lock:
            self._consumer = self._consumer or self._results.connect()
            return self._results.ends_by(self._consumer)

    def published(self, producer: str, since: list[tuple[str, int, int]]) -> PublishedSince:
        """As `ResultTopics.published`."""
        with self._lock:
            return self._results.published(producer, since)


class ProducerShare:
    """A producer as one of its users has it, who waits for the records that are its own: those of
    others may come all the time."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._waiting = 0

    def produce(
        self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[..., None]
    ) -> None:
        """Queue a record. Raises BufferError if the queue is full."""

        def delivered(*answer: Any) -> None:
            self._count(-1)
            on_delivery(*answer)

        self._count(1)
        try:
            self._producer.produce(topic, value, key, on_delivery=delivered)
        except BufferError:
            self._count(-1)
            raise

    def poll(self, timeout: float) -> int:
        """Wait for acknowledgements, of anybody's records."""
        return int(self._producer.poll(timeout))

    def flush(self, timeout: float) -> int:
        """Wait until its own are acknowledged; returns how many are not."""
        end_s = time.monotonic() + timeout
        while self._waiting and (left_s := end_s - time.monotonic()) > 0:
            self._producer.poll(min(left_s, POLL_S))
        return self._waiting

    def purge(self) -> None:
        """Nothing: others need what is queued."""

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change


class HostedContext(WatchContext):
    """Where a watch runs that shares a process."""

    reading = SMALL

    def __init__(self, shared: SharedClients) -> None:
        super().__init__(shared.settings, shared.process)
        self._shared = shared
        self.results, self.pace = shared.results, PACE

    def open_admin(self, client: dict[str, Any]) -> AdminClient:
        """The one of the cluster."""
        return self._shared.admin(client)

    def open_events(self, producer: str) -> CountingSink:
        """The bus, by the client of all watches."""
        return CountedEvents(ProducerShare(self._shared.producer()), producer)

    def opening(self) -> AbstractContextManager[Any]:
        """Waits until few others are opened."""
        return self._shared.opening

    def environment(self) -> dict[str, Any]:
        """Versions and the machine."""
        return self._shared.environment()

    def settle(self) -> None:
        """Tunes the process once."""
        self._shared.settle()

    def show(self, watching: Watching) -> None:
        """Hand the figures to the parent."""
        text = json.dumps(self.shown(watching)).encode()
        self._shared.write(watching.watch.name, SHOWN + text)


class WatchHost:
    """Runs watches in threads. open_context: of each; write: takes a line of a watch."""

    def __init__(
        self, open_context: Callable[[], WatchContext], write: Callable[[str, bytes], None]
    ) -> None:
        self._open_context, self._write = open_context, write
        self._running: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def obey(self, line: str) -> None:
        """Do what a line of the parent says."""
        verb, name = line.split()
        if verb == "stop":
            if name in self._running:  # else it has just ended
                self._running[name][1].set()
            return
        stop = threading.Event()
        arguments = (name, stop, verb == "conclude")
        thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        self._running[name] = thread, stop
        thread.start()

    def close(self, within_s: float) -> None:
        """Stop all, each for at most so long."""
        running = [*self._running.values()]
        for _, stop in running:
            stop.set()
        for thread, _ in running:
            thread.join(within_s)

    def _run(self, name: str, stop: threading.Event, only_conclude: bool) -> None:
        """A watch from its begin to its end. A defect ends it alone; its trace is in the log."""
        bind_log(watch=name)
        reason: str | None = None
        try:
            reason = run_until(stop, name, self._open_context(), only_conclude=only_conclude)
        finally:
            text = "it was ended by a defect; see the watcher's log" if reason is None else reason
            short = text.encode(errors="replace")[:MOST_REASON_BYTES].replace(b"\n", b" ")
            release_memory()
            del self._running[name]
            self._write(name, ENDED + short)


def main() -> None:
    """Run the watches that standard input names until told to stop."""
    process = sys.argv[-1]
    settings = load_settings(ServiceSettings)
    configure_logs(process, settings.log_level)
    limit_arenas()
    shared = SharedClients(settings, process)
    host = WatchHost(lambda: HostedContext(shared), shared.write)

    def stop(_signal: int, _frame: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        for line in sys.stdin:
            host.obey(line)
    except SystemExit:
        host.close(CLOSE_S)
        return
    os.kill(os.getpid(), signal.SIGKILL)  # the parent has ended: the next process resumes


if __name__ == "__main__":
    main()
