"""One watch as a process: `python -m services.watcher.process NAME`, started by the watcher. Small
watches may share a process (hosting.py).

It ends when its standard input is closed, or at SIGTERM; the next process resumes. It first
concludes what is left of a watch that was ended or changed; with `--conclude` before the name it
does only that.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NoReturn

import psutil
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from schemas.validation_errors import first_mistake
from schemas.watch import Watch, WatchedKafka, own_name
from services.definitions.requests import environment
from services.definitions.watches import kept_watch, position_path
from services.runtime.events import EventProducer, Events
from services.runtime.figure_metrics import FigureCounts
from services.runtime.kafka import SILENT, KafkaUnavailableError, event_producer, said_by_kafka
from services.runtime.logs import configure_logs, get_log
from services.runtime.process import Clock, expect_batches, limit_arenas, now_ms, stop_on_signals
from services.runtime.program import end_with_parent
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.transactions import CommitReader
from services.watcher import position
from services.watcher.cluster import client_properties
from services.watcher.clusters import ClusterLags, ClusterReaders, LagReader, TopicsReader
from services.watcher.group_lag import FETCHING, GroupLagReader, NextRecords
from services.watcher.position import CatchingUp, EventStore, ResultTopics
from services.watcher.reading import READING, WatchReader
from services.watcher.runs import WatchRuns
from services.watcher.schema_ids import RegistrySilentError
from services.watcher.seats import MOST_REASON_BYTES, SHOWN
from services.watcher.watched import Watched
from services.watcher.watching import BusSilentError, CountingSink, Watching, WatchPace

CATCH_UP_S: Final = 30.0  # for a watch that is to end
REASONS_TO_END: Final = (
    BusSilentError,
    KafkaException,
    KafkaUnavailableError,
    OSError,
    RegistrySilentError,
    SecretFileError,
    ValueError,
)
COMMITS_PATIENCE_S: Final = 30.0
log = get_log()


def commit_reader(client: dict[str, Any]) -> CommitReader | None:
    """Reads transactions with the properties of a client; None if it does not support these."""
    try:
        return CommitReader(client, {}, COMMITS_PATIENCE_S)
    except (OSError, ValueError) as error:
        log.warning("transactions_unread", reason=str(error))
        return None


class CountedEvents(Events):
    """The bus, and the counts of the figures that a watch has published on it."""

    def __init__(self, producer: EventProducer, name: str) -> None:
        super().__init__(producer, name)
        self.counts = FigureCounts()

    def publish_figures(self, topic: str, run_id: str, /, **fields: Any) -> None:
        """Publish and count figures."""
        super().publish_figures(topic, run_id, **fields)
        self.counts.add(topic, fields)


class WatchContext:
    """What a watch runs in: the settings of this machine, the bus, the watched cluster, the pace
    and the clock (epoch ms). newest: the watch that was opened last. reading: properties of the
    client that reads. process: the name of the process in figures."""

    reading: Mapping[str, Any] = READING

    def __init__(self, settings: ServiceSettings, process: str = "") -> None:
        self.settings, self.process = settings, process
        self.results: EventStore = ResultTopics(settings)
        self.pace = WatchPace()
        self.clock: Clock = now_ms
        self.newest: Watching | None = None

    def open_reader(self, watch: Watch) -> tuple[TopicsReader, LagReader]:
        """Readers of the topics and of the lag of a watch. Raises KafkaException, OSError,
        ValueError for properties that cannot be used."""
        if not watch.clusters:
            return self._open_cluster(watch, "", watch.kafka)
        kafkas = {"": watch.kafka} | {name: each.kafka for name, each in watch.clusters.items()}
        readers, lags = {}, {}
        for name, kafka in kafkas.items():
            readers[name], lags[name] = self._open_cluster(watch, name, kafka)
        return ClusterReaders(readers), ClusterLags(lags)

    def _open_cluster(
        self, watch: Watch, cluster: str, kafka: WatchedKafka
    ) -> tuple[WatchReader, GroupLagReader]:
        """Readers of the topics and groups of one cluster, by their names there."""

        def there(names: Iterable[str]) -> tuple[str, ...]:
            mine = (name for name in names if watch.cluster_of(name) == cluster)
            return tuple(name.removeprefix(own_name(cluster, "")) for name in mine)

        client = client_properties(kafka, watch.name, self.settings)
        admin = self.open_admin(client)
        reader = WatchReader(
            lambda: Consumer({**client, **self.reading}),
            admin,
            there(watch.topics()),
            outputs=there(each.topic for each in (*watch.through, *watch.outputs)),
            commits=commit_reader(client),
        )
        next_records = NextRecords(lambda: Consumer(client | FETCHING))
        return reader, GroupLagReader(admin, next_records, there(watch.groups))

    def open_admin(self, client: dict[str, Any]) -> AdminClient:
        """A client that asks for ends and descriptions. client: its properties."""
        return AdminClient(client | SILENT)

    def open_events(self, producer: str) -> CountingSink:
        """What publishes the results of a watch."""
        return CountedEvents(event_producer(self.settings, producer), producer)

    def opening(self) -> AbstractContextManager[Any]:
        """Entered while a watch is opened or what is left of it is concluded."""
        return nullcontext()

    def settle(self) -> None:
        """Called once a watch is open."""
        expect_batches()

    def show(self, watching: Watching) -> None:
        """Hand the figures to the parent, which reads all along. Raises OSError."""
        sys.stdout.buffer.write(SHOWN + json.dumps(self.shown(watching)).encode() + b"\n")
        sys.stdout.buffer.flush()

    def shown(self, watching: Watching) -> dict[str, Any]:
        """The figures of a watch, and what its process takes, as JSON types."""
        return watching.shown() | {"process": used_by(self.process)}

    def environment(self) -> dict[str, Any]:
        """Versions and the machine."""
        return environment()


def main() -> None:
    """Watch until told to stop. Exits with one sentence if the watch cannot continue."""
    name = sys.argv[-1]
    settings = load_settings(ServiceSettings)
    configure_logs(f"watch-{name}", settings.log_level)
    limit_arenas()
    stop = stop_on_signals()
    end_with_parent()
    run(name, WatchContext(settings, name), stop, only_conclude="--conclude" in sys.argv[1:-1])


def run(name: str, context: WatchContext, stop: threading.Event, *, only_conclude: bool) -> None:
    """Conclude what was left of a watch, then watch until told to stop. Exits as `main`."""
    if reason := run_until(stop, name, context, only_conclude=only_conclude):
        _end(name, reason)


def run_until(
    stop: threading.Event, name: str, context: WatchContext, *, only_conclude: bool
) -> str:
    """Conclude what was left of a watch, then watch until told to stop. Returns why it could not go
    on; empty if it was told to stop."""
    try:
        with context.opening():
            end_left(name, context, stop)
        if not only_conclude:  # else the parent does not know this watch
            watch_until(stop, name, context)
    except ValidationError as error:
        return first_mistake(error)
    except REASONS_TO_END as error:
        return said_by_kafka(error) or type(error).__name__
    return ""


def used_by(process: str) -> dict[str, Any]:
    """What this process takes. cpu_s: since it began; thread_s: of it, this thread's."""
    return {
        "name": process,
        "memory_bytes": psutil.Process().memory_info().rss,
        "cpu_s": time.process_time(),
        "thread_s": time.thread_time(),
    }


def watch_until(stop: threading.Event, name: str, context: WatchContext) -> None:
    """Watch until told to stop, and show the figures all along. Raises what REASONS_TO_END has."""
    watch = wanted_watch(context.settings, name)
    if watch is None or stop.is_set():
        return
    with context.opening():
        watching = open_watching(watch, context)
    try:
        context.settle()
        log.info("started", catching_up=watching.behind is not None)
        shown_s = time.monotonic()
        while not stop.is_set():
            watching.step()
            if time.monotonic() - shown_s >= watching.pace.show_s:
                shown_s = time.monotonic()
                context.show(watching)
        if watching.behind is None:
            close(watching)
    finally:
        watching.reader.close()


def _end(name: str, reason: str) -> NoReturn:
    """Write the reason to the pipe of the parent and to the log, and exit. The pipe gets at most
    MOST_REASON_BYTES."""
    os.write(sys.stdout.fileno(), reason.encode(errors="replace")[:MOST_REASON_BYTES])
    sys.exit(f"watch {name}: {reason}")


def wanted_watch(settings: ServiceSettings, name: str) -> Watch | None:
    """The watch in its file; None without a file. Raises OSError, ValueError."""
    try:
        return kept_watch(settings.data, name)
    except FileNotFoundError:
        return None


def close(watching: Watching) -> None:
    """End a watch that was removed or changed; otherwise save its position. Raises as
    `Watching.save`."""
    wanted = wanted_watch(watching.settings, watching.watch.name)
    if wanted is not None and position.digest(wanted) == position.digest(watching.watch):
        watching.save()
    else:
        watching.end()


def end_left(name: str, context: WatchContext, stop: threading.Event) -> None:
    """End what a process left of a watch that was removed or changed. Raises KafkaException,
    KafkaUnavailableError, BusSilentError, OSError, ValueError."""
    settings = context.settings
    path, wanted = position_path(settings.data, name), wanted_watch(settings, name)
    try:
        saved = position.load(path)
    except ValueError as error:
        if wanted is not None:
            raise
        log.warning("not_concluded", reason=str(error))
        path.unlink()
        return
    if saved is None or (wanted is not None and position.digest(wanted) == saved[1]["watch"]):
        return
    try:
        before = Watch.model_validate_json(saved[1]["definition"])
    except ValueError:
        log.warning("not_concluded", reason="its position is from another version")
        path.unlink()
        return
    try:
        watching = _restored(before, context, saved)
    except (KafkaException, OSError, ValueError) as error:  # such as a moved certificate
        log.warning("not_concluded", reason=said_by_kafka(error))
        path.unlink()
        return
    _ask_bus(watching, context, saved)
    reason = ""
    try:
        watching.catch_up(stop, CATCH_UP_S)
    except (KafkaException, KafkaUnavailableError, RegistrySilentError) as error:
        reason = said_by_kafka(error)
        log.warning("not_caught_up", reason=reason)
    if watching.behind is None or not stop.is_set():
        watching.end(reason)
    watching.reader.close()


def open_watching(watch: Watch, context: WatchContext) -> Watching:
    """A new watch, or one resumed from its position. Raises KafkaException, KafkaUnavailableError,
    ValueError for invalid schemas or an invalid position."""
    saved = position.load(position_path(context.settings.data, watch.name))
    if saved is not None:
        watching = _restored(watch, context, saved)
        _ask_bus(watching, context, saved)
        watching.look_behind()
        return watching
    began_ms = context.clock()
    watching = _assembled(watch, context, began_ms if watch.begin == "now" else 0)
    watching.runs.beginning = f"{began_ms // 1000:x}"
    reader, watched = watching.reader, watching.watched
    places = reader.places()
    bounds = reader.bounds(places)
    if watch.begin == "now":
        since_ms = began_ms - watch.relation.remember_ms
        begins = reader.offsets_at(places, since_ms)
        watched.live_from = {place: end for place, (_, end) in bounds.items()}
    else:
        begins = {place: first for place, (first, _) in bounds.items()}
        for place, (first, end) in bounds.items():
            if first > 0:
                watched.removals.expect_cut(place, place[0] in watched.inputs, first == end)
    reader.begin(begins)
    watched.removals.expect(begins, reader.compacted())
    watching.save()
    return watching


def _restored(watch: Watch, context: WatchContext, saved: position.Saved) -> Watching:
    """A watch restored from a position. Raises KafkaException, OSError, ValueError if its clients
    cannot be opened or the position is invalid."""
    watching = _assembled(watch, context, context.clock())
    watching.restore(*saved)
    return watching


def _ask_bus(watching: Watching, context: WatchContext, saved: position.Saved) -> None:
    """Read what was published after a position, but not yet how far it was counted. Raises
    KafkaException, KafkaUnavailableError."""
    producer, since = f"watch-{watching.watch.name}", saved[1]["bus"]
    published = context.results.published(producer, since)
    watching.behind = CatchingUp(published, {}, context.clock())


def _assembled(watch: Watch, context: WatchContext, since_ms: int) -> Watching:
    reader, lag = context.open_reader(watch)
    context.newest = Watching(
        watch,
        context.settings,
        context.open_events(f"watch-{watch.name}"),
        reader,
        Watched(watch, since_ms),
        WatchRuns(watch, context.environment()),
        position_path(context.settings.data, watch.name),
        lag,
        context.results,
        context.pace,
    )
    return context.newest


if __name__ == "__main__":
    main()
