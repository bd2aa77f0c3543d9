"""One watch as a process: `python -m services.watcher.watching NAME`, started by the watcher.

It reads, judges once a second, publishes, and now and then writes down where it is. It ends when
its standard input does, or at SIGTERM; the next one goes on.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from schemas import catalogue, protocol
from schemas.watch import Watch
from services.runtime.clock import now_ms
from services.runtime.environment import environment
from services.runtime.events import Events
from services.runtime.kafka import KafkaUnavailableError, event_producer
from services.runtime.logs import configure_logs
from services.runtime.memory import expect_batches, return_pages
from services.runtime.program import end_with_parent
from services.runtime.reconciling import NotRepeatableError
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.stopping import stop_on_signals
from services.runtime.watches import kept_watch, kept_watches, position_path
from services.watcher import position
from services.watcher.events import Event
from services.watcher.group_lag import GroupLag
from services.watcher.position import SUMMED, Published
from services.watcher.reading import (
    READING,
    Place,
    Trouble,
    WatchReader,
    client_properties,
    first_offsets,
    offsets_at,
)
from services.watcher.runs import Runs, run_id_of, said_of_times
from services.watcher.sampling import WHOLE
from services.watcher.watched import MOST_UNREAD, Watched

STEP_S: Final = 1.0
SAVE_S: Final = 10.0
BYTES_PER_SAVED_S: Final = 4_000_000  # a large position is written less often
MOST_READ: Final = 20_000
READ_S: Final = 0.25
REPORT_S: Final = 30.0
ASK_LAG_S: Final = 5.0
BUS_WAIT_S: Final = 10.0
log = structlog.get_logger()


class BusSilentError(RuntimeError):
    """What was published is not acknowledged: nothing can be said of where the watch is."""


@dataclass
class CatchingUp:
    """What the process before this one published behind the position that this one goes on from,
    until this one has counted as far as that one can have."""

    published: Published
    ends: dict[Place, int]
    began_ms: int

    def is_over(self, positions: dict[Place, int], before_ms: int) -> bool:
        """Whether everything is counted that may have been."""
        read = all(positions.get(place, end) >= end for place, end in self.ends.items())
        return read and before_ms >= self.began_ms


@dataclass
class Watching:
    """A watch that goes on."""

    watch: Watch
    settings: ServiceSettings
    events: Events
    reader: WatchReader
    watched: Watched
    runs: Runs
    path: Path
    lag: GroupLag
    behind: CatchingUp | None = None
    _troubles: list[Trouble] = field(default_factory=list)
    _refusals_s: float = 0.0
    _saved_s: float = 0.0
    _asked_s: float = 0.0
    _save_every_s: float = SAVE_S

    def step(self) -> None:
        """Read for a second, then judge and publish. Raises KafkaException, BusSilentError."""
        end_s = time.monotonic() + STEP_S
        while time.monotonic() < end_s:
            for topic, messages in self.reader.read(MOST_READ, READ_S):
                for place, offset, time_ms in self.watched.take(topic, messages):
                    self.reader.read_until(place, offset, time_ms)
            if self.watched.unread > MOST_UNREAD:
                break
        self.reader.is_full = self.watched.unread > MOST_UNREAD
        frontier_ms = self.reader.frontier_ms()
        if frontier_ms is not None:
            self._judge(frontier_ms)
        self._tell_lag()
        self._tell_troubles()
        if time.monotonic() - self._saved_s > self._save_every_s and self.behind is None:
            self.save()

    def save(self) -> None:
        """Write down where the watch is. Raises BusSilentError, KafkaException, OSError."""
        self._publish(self.watched.counting.slices.take())
        self._flush()
        arrays, rest = self.watched.saved()
        bus = position.bus_ends(self.settings)
        places = [[*place, offset] for place, offset in self.reader.positions.items()]
        runs = {"begun": sorted(self.runs.begun), "concluded": sorted(self.runs.concluded)}
        reasons = {str(run): known for run, known in self.runs.reasons.items()}
        rest |= {"positions": places, "bus": bus, "runs": runs, "reasons": reasons}
        rest["watch"] = position.digest(self.watch)
        position.save(self.path, arrays, rest)
        size = sum(column.nbytes for column in arrays.values())
        return_pages()
        self._save_every_s = max(SAVE_S, size / BYTES_PER_SAVED_S)
        self._saved_s = time.monotonic()

    def end(self) -> None:
        """Conclude what has begun: nobody wants the watch any more."""
        self._publish(self.watched.counting.slices.take())
        for run in sorted(self.runs.begun - self.runs.concluded):
            told = self._told(run) | {"until_ms": self.watched.before_ms}
            self._publish(self.runs.conclude(run, self.watched.counting.totals[run], told))
        self._flush()
        self.path.unlink(missing_ok=True)

    def _judge(self, frontier_ms: int) -> None:
        watched, runs = self.watched, self.runs
        events = list(watched.advance(frontier_ms))
        now = watched.counting.run_of(watched.before_ms - 1)
        is_live = watched.since_ms <= watched.before_ms - 1
        for run in sorted({event.run for event in events} | ({now} if is_live else set())):
            self._publish(runs.begin(run))
        self._publish(events)
        if watched.is_full:
            watched.halve()
            runs.object(now, "From some moment on fewer identities were counted than before.")
            share = watched.sampling.limit / WHOLE
            reason = "max_records inputs are remembered"
            self._troubles.append(Trouble("sampled", {"share": share, "reason": reason}))
        for change in watched.sampling.changes:
            reason = f"one in {1 / change.share:g} at {change.records_per_second:g} records/s"
            self._troubles.append(Trouble("sampled", asdict(change) | {"reason": reason}))
        watched.sampling.changes.clear()
        self._end_catching_up()
        if self.behind is None:
            for run in runs.due(watched.before_ms):
                self._publish(runs.conclude(run, watched.counting.totals[run], self._told(run)))
            runs.forget(watched.counting, watched.before_ms)

    def _told(self, run: int) -> dict[str, Any]:
        clocks = self.reader.clocks
        leaders, apart_ms = clocks.leaders(), clocks.difference_ms()
        run_ms = 1000 * self.watch.run_s
        shares = self.watched.sampling.shares(run_ms * run, run_ms * (run + 1))
        return {
            "share": min(share for _, share in shares),
            "shares": shares,
            "times": said_of_times(self.watched.times, leaders, apart_ms),
            "brokers": leaders,
            "clocks_apart_ms": apart_ms,
        }

    def _publish(self, events: Iterable[Event]) -> None:
        for event in events:
            run_id = run_id_of(self.watch, event.run)
            if self.behind is not None and self._is_told(event, run_id):
                continue
            self.events.publish(event.topic, run_id, **event.fields)

    def _is_told(self, event: Event, run_id: str) -> bool:
        """Whether an event is not to be published now: it was, or its counts come at the end."""
        assert self.behind is not None
        if event.topic in SUMMED:
            self.behind.published.counts(run_id).count(event.topic, event.fields)
            return True
        name = event.fields.get("event", event.topic)
        return (run_id, name) in self.behind.published.events

    def _end_catching_up(self) -> None:
        behind = self.behind
        if behind is None or not behind.is_over(self.reader.positions, self.watched.before_ms):
            return
        self._publish(self.watched.counting.slices.take())
        self.behind = None
        for run_id, counts in behind.published.owed.items():
            try:
                for topic, fields in counts.events():
                    self.events.publish(topic, run_id, **fields)
            except NotRepeatableError as error:
                self._troubles.append(Trouble("not_repeatable", {"reason": str(error)}))
        for run_id, name in behind.published.events:
            self._note(run_id, name)
        log.info("caught_up")
        self.save()

    def _note(self, run_id: str, event: str) -> None:
        """A run that the process before has concluded is not concluded again."""
        for run in self.runs.begun:
            if run_id_of(self.watch, run) == run_id and event == protocol.CONCLUDED:
                self.runs.concluded.add(run)

    def _tell_lag(self) -> None:
        if not self.watch.groups or time.monotonic() - self._asked_s < ASK_LAG_S:
            return
        self._asked_s = time.monotonic()
        fields = self.lag.ask()
        if fields is not None:
            run_id = run_id_of(self.watch, self.watched.counting.run_of(now_ms()))
            source = f"watch-{self.watch.name}"
            self.events.publish(catalogue.METRICS, run_id, source=source, **fields)

    def _tell_troubles(self) -> None:
        now_s = time.monotonic()
        troubles = [*self._troubles, *self.reader.troubles, *self.lag.troubles]
        self._troubles, self.reader.troubles, self.lag.troubles = [], [], []
        if self.watched.refused and now_s - self._refusals_s > REPORT_S:
            self._refusals_s = now_s
            for (topic, reason), first in self.watched.refused.items():
                place = {"partition": first.partition, "offset": first.offset}
                told = {"topic": topic, "reason": reason, "records": first.count, **place}
                troubles.append(Trouble("undecodable", told))
            self.watched.refused.clear()
        run = self.watched.counting.run_of(max(self.watched.before_ms, self.watched.since_ms))
        for one in troubles:
            self._object(run, one)
            log.warning("trouble", kind=one.kind, **one.detail)
            detail = {"kind": one.kind, "watch": self.watch.name, **one.detail}
            run_id = run_id_of(self.watch, run)
            self.events.lifecycle(protocol.WATCH_TROUBLE, run_id, detail=detail)

    def _object(self, run: int, trouble: Trouble) -> None:
        told = trouble.detail
        if trouble.kind == "retention_overtook":
            reason = f"{told['records']} records of {told['topic']} were deleted before they were"
            self.runs.object(run, f"{reason} read.")
        elif trouble.kind == "topic_deleted":
            self.runs.object(run, f"The topic {told['topic']} was deleted.")
        elif trouble.kind == "not_repeatable":
            self.runs.object(run, "After a restart the topics did not say what they had said.")

    def _flush(self) -> None:
        if self.events.flush(BUS_WAIT_S) or self.events.failed:
            raise BusSilentError("the bus does not acknowledge what was published")


def main() -> None:
    """Watch until told to stop. Ends with one sentence where the watch cannot go on."""
    name = sys.argv[1]
    settings = load_settings(ServiceSettings)
    configure_logs(f"watch-{name}", settings.log_level)
    stop = stop_on_signals()
    end_with_parent()
    try:
        watch = kept_watch(settings.data, name)
        watching = open_watching(watch, settings)
        expect_batches()
        log.info("started", catching_up=watching.behind is not None)
        while not stop.is_set():
            watching.step()
        if name not in kept_watches(settings.data):
            watching.end()
        elif watching.behind is None:
            watching.save()
    except (KafkaException, KafkaUnavailableError, SecretFileError, BusSilentError) as error:
        sys.exit(f"watch {name}: {error}")
    except (OSError, ValueError) as error:
        sys.exit(f"watch {name}: {error}")


def open_watching(watch: Watch, settings: ServiceSettings) -> Watching:
    """A watch that begins, or goes on where it was. Raises KafkaException, KafkaUnavailableError,
    ValueError where its schemas or its position are wrong."""
    producer = f"watch-{watch.name}"
    client = client_properties(watch.kafka, watch.name, settings)
    admin = AdminClient(client)
    reader = WatchReader(lambda: Consumer(client | READING), admin, watch.topics())
    consumer = reader.consumer
    events = Events(event_producer(settings, producer), producer)
    path = position_path(settings.data, watch.name)
    saved = position.load(path)
    began_ms = now_ms()
    watched = Watched(watch, began_ms if watch.begin == "now" else 0)
    runs = Runs(watch, environment())
    lag = GroupLag(admin, watch.groups)
    watching = Watching(watch, settings, events, reader, watched, runs, path, lag)
    if saved is None or saved[1]["watch"] != position.digest(watch):
        places = reader.places()
        if watch.begin == "now":
            since_ms = began_ms - watch.relation.remember_ms
            reader.begin(offsets_at(consumer, places, since_ms))
        else:
            reader.begin(first_offsets(consumer, places))
        watching.save()
        return watching
    arrays, rest = saved
    watched.restore(arrays, rest)
    runs.begun, runs.concluded = set(rest["runs"]["begun"]), set(rest["runs"]["concluded"])
    runs.reasons = {int(run): known for run, known in rest["reasons"].items()}
    reader.begin({(topic, number): offset for topic, number, offset in rest["positions"]})
    published = position.read_published(settings, producer, rest["bus"])
    watching.behind = CatchingUp(published, reader.ends(), began_ms)
    return watching


if __name__ == "__main__":
    main()
