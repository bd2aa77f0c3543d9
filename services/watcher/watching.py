"""A running watch: reads, judges once a second, publishes, and saves its position periodically."""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from schemas import catalogue
from schemas.commands import FindChanges
from schemas.events import Concluded, Conclusion, LifecycleEvent, WatchBegun, WatchTrouble
from schemas.watch import Watch
from services.runtime.counting import NotRepeatableError
from services.runtime.events import EventSink
from services.runtime.figure_metrics import FigureCounts
from services.runtime.logs import get_log
from services.runtime.process import now_ms, return_pages
from services.runtime.settings import ServiceSettings
from services.watcher import position
from services.watcher.clusters import LagReader, TopicsReader, said_of_clusters
from services.watcher.counting import LatencyCounts, RunTotals, WatchFigures
from services.watcher.group_lag import MOST_UNKNOWN_MS, ObservedGroup, TopicLag
from services.watcher.position import SUMMED, CatchingUp, EventStore
from services.watcher.runs import CLUSTERS_APART, WatchRuns
from services.watcher.sampling import WHOLE
from services.watcher.troubles import Trouble, objection, undecodable
from services.watcher.watched import MOST_UNREAD, Watched

MOST_READ: Final = 8_000  # arrays below the size that glibc maps and unmaps each time
REPORT_S: Final = 30.0
ASK_LAG_S: Final = 5.0
BUS_WAIT_S: Final = 10.0
LARGE_BYTES: Final = 1_000_000  # of a position that leaves free pages
NOT_RECOUNTED: Final = "It ended before everything was recounted"
REDUCED: Final = "The share of identities counted was reduced during the run."
log = get_log()


REMEDY: Final = (
    "It has no figures, and which outputs are late is unknown. Set message.timestamp.type to "
    "LogAppendTime for the topics."
)


def mostly_negative(times: dict[str, set[str]], latencies: LatencyCounts) -> str:
    """Why the timestamps do not measure latency if most of it would be negative; empty otherwise.
    times: timestamp types by topic; those of brokers alone are left as they are."""
    values, counts = latencies.columns()
    negative, every = int(counts[values < 0].sum()), int(counts.sum())
    is_create = any("CreateTime" in kinds for kinds in times.values())
    if not is_create or 2 * negative <= every:
        return ""
    return (
        f"{negative} of {every} latencies are negative, the lowest {values[0]} ms, so the clocks of"
        " the producers differ"
    )


def said_of_times(
    times: dict[str, set[str]], leaders: list[int], apart_ms: int | None, unmeasured: str = ""
) -> str:
    """Which clocks the times of a watch come from, in a sentence or two. times: timestamp types by
    topic; apart_ms: measured clock difference of the leaders; None if it was not measured;
    unmeasured: why these times do not measure latency, if they do not."""
    if unmeasured:
        return f"These timestamps cannot measure latency: {unmeasured}. {REMEDY}"
    by_producers = sorted(topic for topic, kinds in times.items() if "CreateTime" in kinds)
    if by_producers:
        return (
            f"The timestamps of {', '.join(by_producers)} are CreateTime from producers: latencies "
            "include the error of the producers' clocks."
        )
    if not any("LogAppendTime" in kinds for kinds in times.values()):
        return "No record with a timestamp was read."
    if len(leaders) < 2:
        return "All timestamps are LogAppendTime from one broker."
    apart = f"which seem {apart_ms} ms apart"
    if apart_ms is None:
        apart = "whose difference was not measured"
    return (
        f"All times are LogAppendTime, by the clocks of {len(leaders)} brokers, {apart}: a latency "
        "between two of them has that error."
    )


class CountingSink(EventSink, Protocol):
    """What takes the events of a watch. counts: of the figures that it took."""

    counts: FigureCounts


class BusSilentError(RuntimeError):
    """Published events are not acknowledged, so the position cannot be saved."""


@dataclass(frozen=True)
class WatchPace:
    """How often a watch does what. search_s: least time between two searches for change points;
    show_s: between figures for the parent, so that few wait in its pipe; read_s: at most for which
    a read waits for records."""

    step_s: float = 1.0
    save_s: float = 10.0
    bytes_per_saved_s: int = 4_000_000  # large positions are saved less often
    search_s: float = 300.0
    show_s: float = 5.0
    read_s: float = 0.25


@dataclass
class Watching:
    """A running watch. results: where its events are published."""

    watch: Watch
    settings: ServiceSettings
    events: CountingSink
    reader: TopicsReader
    watched: Watched
    runs: WatchRuns
    path: Path
    lag: LagReader
    results: EventStore
    pace: WatchPace = WatchPace()
    behind: CatchingUp | None = None
    _lags: dict[str, ObservedGroup] = field(default_factory=dict)  # by group
    _told: set[tuple[str, str]] = field(default_factory=set)  # of the process before: Published
    _troubles: list[Trouble] = field(default_factory=list)
    _lost: list[Trouble] = field(default_factory=list)  # that may concern further runs
    _refusals_s: float = 0.0
    _saved_s: float = 0.0
    _asked_s: float = 0.0
    _concluded: str = ""  # id of the newest run after which no search was requested
    _searched_s: float = -math.inf
    _save_every_s: float = 0.0

    def __post_init__(self) -> None:
        self._save_every_s = self.pace.save_s

    def step(self) -> None:
        """Read for a second, then judge and publish. Raises KafkaException, KafkaUnavailableError,
        BusSilentError, RegistrySilentError."""
        end_s = time.monotonic() + self.pace.step_s
        while time.monotonic() < end_s:
            for topic, messages in self.reader.read(MOST_READ, self.pace.read_s):
                visible_ms = self.reader.visible_ms(topic, messages)
                for last in self.watched.take(topic, messages, visible_ms):
                    self.reader.read_until(*last)
            if self.watched.unread > MOST_UNREAD:
                break
        self.reader.is_full = self.watched.unread > MOST_UNREAD
        frontier_ms = self.reader.frontier_ms()
        self._note_lost()
        for topic, aborted in self.reader.take_aborted().items():
            self.watched.count_aborted(topic, aborted)
        if frontier_ms is not None:
            self._judge(frontier_ms)
        self._tell_lag()
        self._tell_troubles()
        if time.monotonic() - self._searched_s >= self.pace.search_s:
            self._request_search()
        if time.monotonic() - self._saved_s > self._save_every_s:
            if self.behind is None:
                self.save()
            else:
                self._publish(self.watched.slices())
                self._saved_s = time.monotonic()

    def shown(self) -> dict[str, Any]:
        """The figures published so far and the state, as JSON types: see `WatchMetrics`."""
        before_ms = self.watched.before_ms
        return {
            "figures": self.events.counts.saved(),
            "lag_ms": max(0, now_ms() - before_ms) if before_ms else None,
            "is_valid": not self.runs.reasons.get(self._run()),
            "lags": [astuple(each) for each in self._known_lags()],
        }

    def _known_lags(self) -> Iterator[TopicLag]:
        """The lags of groups that answered of late."""
        since_ms = now_ms() - MOST_UNKNOWN_MS
        for lag in self._lags.values():
            if lag.asked_ms >= since_ms:
                yield from lag.topics()

    def save(self) -> None:
        """Save the position. Raises BusSilentError, KafkaException, OSError."""
        self._publish_counts()
        self._flush()
        arrays, rest = self.watched.saved()
        bus = self.results.ends()
        places = [[*place, offset] for place, offset in self.reader.kept.items()]
        rest |= {"positions": places, "topics": self.reader.saved_topics(), "bus": bus}
        rest |= {**self.runs.saved(), "lost": [asdict(each) for each in self._lost]}
        rest["watch"], rest["definition"] = (
            position.digest(self.watch),
            self.watch.model_dump_json(),
        )
        position.save(self.path, arrays, rest)
        size = sum(column.nbytes for column in arrays.values()) + len(rest["definition"])
        if size > LARGE_BYTES:
            return_pages()
        self._save_every_s = max(self.pace.save_s, size / self.pace.bytes_per_saved_s)
        self._saved_s = time.monotonic()

    def restore(self, arrays: position.Arrays, rest: dict[str, Any]) -> None:
        """Restore a saved position, and start reading. Raises KafkaException."""
        self.watched.restore(arrays, rest)
        self.runs.restore(rest)
        self._lost = [Trouble(**each) for each in rest["lost"]]
        places = {(topic, number): offset for topic, number, offset in rest["positions"]}
        self.reader.begin(places, rest["topics"])
        self.watched.removals.expect(places, self.reader.compacted())

    def look_behind(self) -> None:
        """Find how far the previous process can have counted. Raises KafkaUnavailableError."""
        if self.behind is not None:
            self.behind.ends = self.reader.ends()

    def catch_up(self, stop: threading.Event, within_s: float) -> None:
        """Count again what the previous process has published, as time permits. Raises as
        `look_behind` and `step`."""
        self.look_behind()
        end_s = time.monotonic() + within_s
        while self.behind is not None and not stop.is_set() and time.monotonic() < end_s:
            self.step()

    def end(self, reason: str = "") -> None:
        """Conclude all begun runs of a watch that was removed. reason: why it could not be caught
        up, if it could not. Raises as `save`."""
        self._leave_behind(reason)
        self.watched.end()
        self._publish_counts()
        self._object()
        for run in sorted(self.runs.begun - self.runs.concluded):
            self._conclude(run, ended=True)
        self._flush()
        self.path.unlink(missing_ok=True)
        self._request_search()

    def _judge(self, frontier_ms: int) -> None:
        watched, runs = self.watched, self.runs
        events = list(watched.advance(frontier_ms))
        now = watched.counting.run_of(watched.before_ms - 1)
        is_live = watched.since_ms <= watched.before_ms - 1
        self._begin({event.run for event in events} | ({now} if is_live else set()))
        self._publish(events)
        self._object()
        if watched.is_full:
            watched.halve()
            for run in {now} | (runs.begun - runs.concluded):
                runs.object(run, REDUCED)
            detail: dict[str, Any] = {"share": watched.sampling.limit / WHOLE, "invalid": REDUCED}
            detail["reason"] = "more than max_records inputs and outputs are remembered"
            self._troubles.append(Trouble("sampled", detail, run=now))
        elif self.behind is None and (more := watched.double()):
            detail = {"from_ms": more.from_ms, "share": more.share}
            reason = "few inputs and outputs are remembered again"
            self._troubles.append(Trouble("sampled", detail | {"reason": reason}))
            self._saved_s = -self._save_every_s  # a resumed process must change it at the same time
        for change in watched.sampling.changes:
            reason = f"one in {1 / change.share:g} at {change.records_per_second:g} records/s"
            self._troubles.append(Trouble("sampled", asdict(change) | {"reason": reason}))
        watched.sampling.changes.clear()
        self._end_catching_up()
        if self.behind is None:
            for run in runs.due(watched.before_ms):
                self._conclude(run)
            closed_ms = runs.forget(watched.counting, watched.before_ms, watched.hops)
            watched.closed_ms = max(watched.closed_ms, closed_ms)

    def _begin(self, runs: set[int]) -> None:
        """Begin runs, except those that are closed: their results are final."""
        from_ms = self.watched.from_ms if self.watch.is_one_run else 0
        for run in sorted(runs):
            if self.runs.end_ms(run) > self.watched.closed_ms:
                for event in self.runs.begin(run, from_ms):
                    self._publish_event(event)

    def _publish_counts(self) -> None:
        """Publish the counts that are not published when they are made."""
        events = [*self.watched.throughput(), *self.watched.slices()]
        self._begin({event.run for event in events})
        self._publish(events)

    def _note_lost(self) -> None:
        """Object to the run in which records were lost, before anything later is judged."""
        run = self._run()
        for trouble in self.reader.troubles:
            if objection(trouble):
                trouble.run = run
                self.runs.object(run, objection(trouble))
                self._lost.append(trouble)

    def _object(self) -> None:
        """Object to the begun runs in which records were lost."""
        watched, runs = self.watched, self.runs
        for each in self._lost:
            last = watched.counting.run_of(each.until_ms)
            for run in runs.begun - runs.concluded:
                if each.run is not None and each.run <= run <= last:
                    runs.object(run, objection(each))
        self._lost = [each for each in self._lost if each.until_ms >= watched.before_ms]

    def _run(self) -> int:
        """The run up to which everything is judged."""
        watched = self.watched
        return watched.counting.run_of(max(watched.before_ms, watched.since_ms))

    def _conclude(self, run: int, ended: bool = False) -> None:
        """Publish the events that end a run, except those that the process before has published
        without the other."""
        watched, run_id = self.watched, self.runs.id_of(run)
        totals, *hops = (each.end(run) for each in (watched.counting, *watched.hops))
        watched_ms = (watched.from_ms, watched.before_ms)
        for hop in hops:
            totals.unmeasured = totals.unmeasured or hop.unmeasured
        circumstances = self._circumstances(run, totals, hops)
        for event in self.runs.conclude(run, totals, watched_ms, circumstances, ended, hops=hops):
            if (run_id, _name(event)) not in self._told:
                self._publish_event(event)
        self._concluded = run_id

    def _request_search(self) -> None:
        """Request a search for change points if a run was concluded since the last one."""
        if self._concluded:
            self.events.send(FindChanges(run_id=self._concluded))
            self._concluded, self._searched_s = "", time.monotonic()

    def _circumstances(
        self, run: int, totals: RunTotals, hops: Sequence[RunTotals]
    ) -> dict[str, Any]:
        leaders, apart_ms = self.reader.leaders(), self.reader.difference_ms()
        run_ms = 1000 * self.watch.run_s
        shares = self.watched.sampling.shares(run_ms * run, run_ms * (run + 1))
        times = self.watched.timestamp_types(run_ms * run)
        for each in (totals, *hops):
            totals.unmeasured = totals.unmeasured or mostly_negative(times, each.latencies)
        clocks = said_of_times(times, leaders, apart_ms, totals.unmeasured)
        details: dict[str, Any] = {
            "share": min(share for _, share in shares),
            "shares": shares,
            "times": clocks,
            "brokers": leaders,
            "clocks_apart_ms": apart_ms,
        }
        is_create = any("CreateTime" in kinds for kinds in times.values())
        if self.watch.clusters and not is_create and not totals.unmeasured:
            clusters_ms = self.reader.apart_ms()
            details[CLUSTERS_APART] = clusters_ms
            details["times"] = f"{clocks} {said_of_clusters(self.watch, clusters_ms)}"
        return details

    def _publish(self, events: Iterable[WatchFigures]) -> None:
        for event in events:
            run_id = self.runs.id_of(event.run)
            if self.behind is not None and self._is_told(event, run_id):
                continue
            self.events.publish_figures(event.topic, run_id, **event.fields)

    def _publish_event(self, event: LifecycleEvent | Conclusion) -> None:
        """Publish an event unless the previous process has."""
        published = self.behind.published.events if self.behind is not None else set()
        if (event.run_id, _name(event)) not in published:
            self.events.publish(event, flush=False)

    def _is_told(self, event: WatchFigures, run_id: str) -> bool:
        """Whether to skip figures now: they count in a run of which the previous process has
        published counts, whose difference is published at the end."""
        assert self.behind is not None
        counts = self.behind.published.by_run.get(run_id) if event.topic in SUMMED else None
        if counts is not None:
            counts.count(event.topic, event.fields)
        return counts is not None

    def _end_catching_up(self) -> None:
        behind = self.behind
        if behind is None or not behind.is_over(self.reader.positions, self.watched.before_ms):
            return
        self._publish_counts()
        self.behind = None
        for run_id, counts in behind.published.by_run.items():
            try:
                for topic, fields in counts.events():
                    self.events.publish_figures(topic, run_id, **fields)
            except NotRepeatableError as error:
                run = self.runs.number_of(run_id)
                trouble = Trouble("not_repeatable", {"reason": str(error)}, run=run)
                self.runs.object(self._run() if run is None else run, objection(trouble))
                self._troubles.append(trouble)
        for run in self._note(behind.published.events):
            self._conclude(run)
        log.info("caught_up")
        self.save()

    def _note(self, published: set[tuple[str, str]]) -> list[int]:
        """Mark runs as begun and concluded by the previous process, also those that it began after
        it had saved its position. Returns those that it was killed while concluding."""
        self._told, halves = published, []
        for run_id in sorted({run_id for run_id, _ in published}):
            run = self.runs.number_of(run_id)
            if run is None or self.runs.end_ms(run) <= self.watched.closed_ms:
                continue
            if (run_id, WatchBegun.name) in published:
                self.runs.begun.add(run)
            ends = {(run_id, catalogue.CONCLUSIONS), (run_id, Concluded.name)} & published
            if len(ends) == 2:
                self.runs.concluded.add(run)
            elif ends:
                halves.append(run)
        return halves

    def _leave_behind(self, reason: str) -> None:
        """Give up on counts that could not be repeated in time."""
        behind, self.behind = self.behind, None
        if behind is None:
            return
        self._note(behind.published.events)
        for run in self.runs.begun:
            self.runs.object(run, f"{NOT_RECOUNTED}: {reason}." if reason else f"{NOT_RECOUNTED}.")
        list(self.watched.slices())
        list(self.watched.throughput())

    def _tell_lag(self) -> None:
        if self.watch.groups and time.monotonic() - self._asked_s > ASK_LAG_S:
            self._asked_s = time.monotonic()
            self.lag.ask()
        for lag in self.lag.answer():
            self._lags[lag.group] = lag
            run = self.watched.counting.run_of(lag.asked_ms)
            self.watched.counting.totals[run].lags.add(lag)
            run_id = self.runs.id_of(run)
            source = f"watch-{self.watch.name}"
            for fields in lag.events():
                self.events.publish_figures(catalogue.METRICS, run_id, source=source, **fields)

    def _tell_troubles(self) -> None:
        now_s = time.monotonic()
        troubles = [*self._troubles, *self.reader.troubles, *self.lag.troubles]
        self._troubles, self.reader.troubles, self.lag.troubles = [], [], []
        if self.watched.refused and now_s - self._refusals_s > REPORT_S:
            self._refusals_s = now_s
            troubles += undecodable(self.watched.refused)
            self.watched.refused.clear()
        for trouble in troubles:
            log.warning("trouble", kind=trouble.kind, **trouble.detail)
            run_id = self.runs.id_of(self._run() if trouble.run is None else trouble.run)
            about = {"invalid": objection(trouble)} | trouble.detail
            self.events.publish(
                WatchTrouble(run_id=run_id, kind=trouble.kind, watch=self.watch.name, **about)
            )

    def _flush(self) -> None:
        if self.events.flush(BUS_WAIT_S) or self.events.failed:
            raise BusSilentError("the bus does not acknowledge published events")


def _name(event: LifecycleEvent | Conclusion) -> str:
    """The name of an event of a run in Published."""
    return event.name if isinstance(event, LifecycleEvent) else event.TOPIC
