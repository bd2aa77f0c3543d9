"""The thread that reads the bus and posts notifications. It never delays a run.

telling = Telling(settings, stack_id, lambda: suite.notify, lambda: True)
telling.start(); …; telling.close()

Unsent notifications and the read position on the bus are in one small file, so that nothing is lost
or sent twice after a kill. A notification is added together with the position after its event. It
is removed after the receiver has accepted it; a kill between the two sends it again with the same
id.

It also notices that no results arrive, overall or from one watch, and that they have resumed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas import catalogue, codec
from schemas.events import Concluded, LifecycleEvent, WatchBegun, read_event
from schemas.suite import Notify
from services.conductor.notices.notice import TOPICS, Looking, Notice, Told, end_of_silence, silence
from services.conductor.notices.posting import SHAPES, NotTakenError, post
from services.runtime.files import write_whole
from services.runtime.kafka import KafkaUnavailableError, assigned_consumer, watermarks
from services.runtime.logs import get_log
from services.runtime.process import Clock, now_ms
from services.runtime.webhooks import Webhook, WebhookSettings

MOST_WAITING: Final = 500
MOST_BYTES: Final = 16 * 1024 * 1024
log = get_log()
MOST_WATCHES: Final = 100
RUNS_PER_WATCH: Final = 10  # whose watch is remembered
MINUTE_MS: Final = 60_000
POLL_S = 0.5
MAX_RECORDS = 1_000
LOOK_FOR_RESULTS_S = 5.0
KEEP_POSITION_S = 30.0
AGAIN_S = 5.0  # retry interval while the broker is unreachable
CLOSE_TIMEOUT_S = 2.0
SENT = Counter("tidegauge_notices", "Messages to webhooks", ["webhook", "outcome"])
_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}


class Quiet(BaseModel):
    """Start of a time without results. end: next offset of the topic; told: whether it was
    reported."""

    end: int = -1
    since_ms: int = 0
    told: bool = False


class OutboxFile(BaseModel):
    """Content of the file. next: offset by topic. waiting: notifications by webhook, oldest
    first. told: of `Told`. watches: times without results of each. watched_runs: the watch of each
    of its runs."""

    model_config = ConfigDict(extra="ignore")

    stack_id: str = ""
    next: dict[str, int] = Field(default_factory=dict)
    waiting: dict[str, list[Notice]] = Field(default_factory=dict)
    quiet: Quiet = Quiet()
    told: list[str] = Field(default_factory=list)
    watches: dict[str, Quiet] = Field(default_factory=dict)
    watched_runs: dict[str, str] = Field(default_factory=dict)


class Outbox:
    """The file `notices.json` of a data folder. For one thread.

    names: of the configured webhooks; notifications for others are dropped. An invalid file counts
    as empty. Changes are saved by `write`.
    """

    def __init__(self, data: Path, names: tuple[str, ...], stack_id: str) -> None:
        self._path = data / "notices.json"
        result = self._read()
        self.next = result.next
        self.told = Told(result.told)
        is_of_stack = result.stack_id == stack_id
        self.quiet = result.quiet if is_of_stack else Quiet()
        self.watches = result.watches if is_of_stack else {}
        self.watched_runs = result.watched_runs if is_of_stack else {}
        self._stack_id = stack_id
        self._waiting = {name: result.waiting.get(name, []) for name in names}

    def add(self, notice: Notice, names: tuple[str, ...]) -> None:
        """Queue a notification for these webhooks; evicts the oldest from a full queue."""
        for name in names:
            queue = self._waiting[name]
            queue.append(notice)
            if len(queue) > MOST_WAITING:
                log.warning("notice_dropped", webhook=name, title=queue.pop(0).title)

    def first(self, name: str) -> Notice | None:
        """The next notification for a webhook."""
        queue = self._waiting[name]
        return queue[0] if queue else None

    def done(self, name: str) -> None:
        """Remove the first: it was sent or is dropped."""
        self._waiting[name].pop(0)

    def write(self) -> None:
        """Save all changes. Raises OSError."""
        kept = OutboxFile(
            stack_id=self._stack_id,
            next=self.next,
            waiting=self._waiting,
            quiet=self.quiet,
            told=self.told.saved(),
            watches=self.watches,
            watched_runs=self.watched_runs,
        )
        write_whole(self._path, kept.model_dump_json())

    def _read(self) -> OutboxFile:
        try:
            with self._path.open("rb") as file:
                return OutboxFile.model_validate_json(file.read(MOST_BYTES))
        except FileNotFoundError:
            return OutboxFile()
        except ValidationError:
            aside = self._path.with_suffix(".unreadable")
            self._path.replace(aside)
            log.warning("notices_set_aside", path=str(aside))
            return OutboxFile()


class Silences:
    """Times without results; its state is the outbox's.

    has_suite: whether there is a suite; then only results of runs count for the silence of
    everything, not those of watches. A watch counts from the event that begins it until the one
    that ends it. max_watches: how many are remembered.
    """

    def __init__(
        self, outbox: Outbox, has_suite: Callable[[], bool], max_watches: int = MOST_WATCHES
    ) -> None:
        self._outbox, self._has_suite = outbox, has_suite
        self._max_watches = max_watches

    def event(self, event: LifecycleEvent, now_ms: int) -> None:
        """Note that a watch begins a run or ends."""
        watches, runs = self._outbox.watches, self._outbox.watched_runs
        match event:
            case WatchBegun(run_id=run_id, run=run):
                runs[run_id] = run.workload.name
                watches.setdefault(run.workload.name, Quiet(since_ms=now_ms))
                while len(watches) > self._max_watches:
                    del watches[next(iter(watches))]
                while len(runs) > RUNS_PER_WATCH * self._max_watches:
                    del runs[next(iter(runs))]
            case Concluded(ended=True):
                watches.pop(runs.get(event.run_id, ""), None)

    def result(self, run_id: str, end: int, now_ms: int) -> list[Notice]:
        """Note a result of a run. end: next offset of its topic."""
        outbox, result = self._outbox, []
        name = outbox.watched_runs.get(run_id, "")
        known = outbox.watches.get(name)
        if known is not None:
            outbox.watches[name] = Quiet(since_ms=now_ms)
            result += [end_of_silence(known.since_ms, now_ms, name)] if known.told else []
        if name and self._has_suite():
            outbox.quiet = outbox.quiet.model_copy(update={"end": end})
            return result
        before, outbox.quiet = outbox.quiet, Quiet(end=end, since_ms=now_ms)
        return [*result, end_of_silence(before.since_ms, now_ms)] if before.told else result

    def look(self, minutes: float, now_ms: int) -> list[Notice]:
        """The silences that last for these minutes now. That of everything includes all watches."""
        outbox, result = self._outbox, []

        def is_due(quiet: Quiet) -> bool:
            return not quiet.told and 0 < minutes * MINUTE_MS <= now_ms - quiet.since_ms

        if is_due(outbox.quiet):
            result.append(silence(outbox.quiet.since_ms, minutes, now_ms))
            outbox.quiet = outbox.quiet.model_copy(update={"told": True})
        if outbox.quiet.told:
            return result
        for name, quiet in outbox.watches.items():
            if is_due(quiet):
                result.append(silence(quiet.since_ms, minutes, now_ms, name))
                outbox.watches[name] = quiet.model_copy(update={"told": True})
        return result


@dataclass
class WebhookState:
    """A webhook and its retry state. due_s: monotonic time of the next attempt."""

    webhook: Webhook
    url: str
    token: str
    attempts: int = 0
    due_s: float = 0.0


class Telling:
    """Posts to the webhooks of the settings. Raises SecretFileError.

    rules: notification rules of the current suite. has_suite: whether there is one.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        stack_id: str,
        rules: Callable[[], Notify],
        has_suite: Callable[[], bool],
        clock: Clock = now_ms,
    ) -> None:
        self._settings, self._rules, self._clock = settings, rules, clock
        self._receivers = {
            name: WebhookState(each, each.address(), each.token())
            for name, each in settings.webhooks.items()
        }
        self._outbox = Outbox(settings.data, tuple(self._receivers), stack_id)
        self._looking = Looking(self._outbox.told)
        self._silences = Silences(self._outbox, has_suite)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="telling", daemon=True)
        self._looked_s = self._kept_s = 0.0

    def start(self) -> None:
        """Start the thread if there are webhooks."""
        if self._receivers:
            self._thread.start()

    def close(self) -> None:
        """Stop after the current post."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        while not self._stop.is_set():
            consumer = assigned_consumer(self._settings, "conductor-notices", **_QUICK)
            try:
                self._begin(consumer)
                while not self._stop.is_set():
                    self._look(consumer)
                    self._post_all()
            except (KafkaException, KafkaUnavailableError, OSError) as error:
                log.warning("telling_interrupted", reason=str(error))
                self._stop.wait(AGAIN_S)
            finally:
                consumer.close()

    def _begin(self, consumer: Consumer) -> None:
        """Resume at the outbox's position; a new outbox starts at the end of the topics."""
        for topic in TOPICS:
            low, high = watermarks(consumer, TopicPartition(topic, 0))
            at = self._outbox.next.get(topic, high)
            self._outbox.next[topic] = high if at > high else max(at, low)
        low, high = watermarks(consumer, TopicPartition(catalogue.LATENCY, 0))
        quiet = self._outbox.quiet
        if quiet.end < 0:
            quiet = Quiet(end=high, since_ms=self._clock())
        at = high if quiet.end > high else max(quiet.end, low)
        self._outbox.quiet = quiet.model_copy(update={"end": at})
        self._outbox.write()
        places = {**self._outbox.next, catalogue.LATENCY: at}
        consumer.assign(
            [TopicPartition(name, 0, places[name]) for name in (*TOPICS, catalogue.LATENCY)]
        )

    def _look(self, consumer: Consumer) -> None:
        read = consumer.consume(MAX_RECORDS, POLL_S)
        added = [self._take(each) for each in read for each in self._read(each)]
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_FOR_RESULTS_S:
            self._looked_s = now_s
            added += map(self._take, self._look_for_results())
        if any(added) or now_s - self._kept_s >= KEEP_POSITION_S:
            self._kept_s = now_s
            self._outbox.write()

    def _take(self, notice: Notice) -> bool:
        """Queue and save a notification at once: its position is known now, and the broker may
        become unreachable."""
        self._outbox.add(notice, self._told_of(notice))
        return True

    def _read(self, message: Message) -> list[Notice]:
        if message.error():
            return []
        topic, offset = message.topic(), message.offset()
        if topic == catalogue.LATENCY:
            run_id = (message.key() or b"").decode(errors="replace")
            return self._silences.result(run_id, offset + 1, self._clock())
        self._outbox.next[topic] = offset + 1
        try:
            event = read_event(topic, message.value())
        except codec.DecodeError:
            return []  # the topic's owner writes the dead letter
        if isinstance(event, LifecycleEvent):
            self._silences.event(event, self._clock())
        result = self._looking.at(event, f"{topic}/{offset}")
        return [result] if result is not None else []

    def _look_for_results(self) -> list[Notice]:
        """Check whether results are missing."""
        minutes = self._rules().no_results_minutes
        minutes = self._settings.no_results_minutes if minutes is None else minutes
        return self._silences.look(minutes, self._clock())

    def _told_of(self, notice: Notice) -> tuple[str, ...]:
        rules = self._rules()
        for name in set(rules.to) - set(self._receivers):
            log.warning("no_such_webhook", webhook=name)
        return tuple(
            name
            for name, receiver in self._receivers.items()
            if (not rules.to or name in rules.to)
            and notice.concerns(rules.on)
            and notice.concerns(receiver.webhook.on)
        )

    def _post_all(self) -> None:
        """One attempt for each webhook with a due notification."""
        for name, receiver in self._receivers.items():
            notice = self._outbox.first(name)
            if notice is not None and time.monotonic() >= receiver.due_s:
                self._post(name, receiver, notice)

    def _post(self, name: str, receiver: WebhookState, notice: Notice) -> None:
        body = SHAPES[receiver.webhook.shape](notice)
        timeout_s = self._settings.webhook_timeout_s
        try:
            post(receiver.url, body, notice.id, receiver.token, timeout_s)
        except NotTakenError as error:
            old = self._clock() - notice.at_ms > self._settings.webhook_give_up_s * 1000
            if error.for_good:  # only this message is refused: the next one need not wait
                receiver.attempts, receiver.due_s = 0, 0.0
            else:
                receiver.attempts += 1
                receiver.due_s = time.monotonic() + self._pause_s(receiver.attempts)
            dropped = error.for_good or old
            SENT.labels(name, "dropped" if dropped else "failed").inc()
            log.warning("notice_not_taken", webhook=name, reason=str(error), dropped=dropped)
            if not dropped:
                return
        else:
            receiver.attempts, receiver.due_s = 0, 0.0
            SENT.labels(name, "sent").inc()
        self._outbox.done(name)
        self._outbox.write()

    def _pause_s(self, attempts: int) -> float:
        doubled = self._settings.webhook_retry_s * 2.0 ** min(attempts - 1, 30)
        return min(doubled, self._settings.webhook_most_retry_s)
