"""The thread that reads the bus and posts notifications. It never delays a run.

telling = Telling(settings, stack_id, lambda: suite.notify, lambda: True)
telling.start(); …; telling.close()
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from prometheus_client import Counter

from schemas import catalogue, codec
from schemas.events import LifecycleEvent, read_event
from schemas.suite import Notify
from services.conductor.notices.notice import TOPICS, Looking, Notice
from services.conductor.notices.outbox import Outbox, Quiet
from services.conductor.notices.posting import NotTakenError, post
from services.conductor.notices.shapes import SHAPES
from services.conductor.notices.silences import Silences
from services.runtime.clock import now_ms
from services.runtime.kafka import KafkaUnavailableError, assigned_consumer, watermarks
from services.runtime.webhooks import Webhook, WebhookSettings

POLL_S = 0.5
MAX_RECORDS = 1_000
LOOK_FOR_RESULTS_S = 5.0
KEEP_POSITION_S = 30.0
AGAIN_S = 5.0  # retry interval while the broker is unreachable
CLOSE_TIMEOUT_S = 2.0
SENT = Counter("tidegauge_notices", "Messages to webhooks", ["webhook", "outcome"])
log = structlog.get_logger()


@dataclass
class Receiver:
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
    ) -> None:
        self._settings, self._rules = settings, rules
        self._receivers = {
            name: Receiver(one, one.address(), one.token())
            for name, one in settings.webhooks.items()
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
            quiet = Quiet(end=high, since_ms=now_ms())
        at = high if quiet.end > high else max(quiet.end, low)
        self._outbox.quiet = quiet.model_copy(update={"end": at})
        self._outbox.write()
        places = {**self._outbox.next, catalogue.LATENCY: at}
        consumer.assign(
            [TopicPartition(name, 0, places[name]) for name in (*TOPICS, catalogue.LATENCY)]
        )

    def _look(self, consumer: Consumer) -> None:
        read = consumer.consume(MAX_RECORDS, POLL_S)
        told = [self._take(found) for one in read for found in self._read(one)]
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_FOR_RESULTS_S:
            self._looked_s = now_s
            told += map(self._take, self._look_for_results())
        if any(told) or now_s - self._kept_s >= KEEP_POSITION_S:
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
            return self._silences.result(run_id, offset + 1, now_ms())
        self._outbox.next[topic] = offset + 1
        try:
            event = read_event(topic, message.value())
        except codec.DecodeError:
            return []  # the topic's owner writes the dead letter
        if isinstance(event, LifecycleEvent):
            self._silences.event(event, now_ms())
        found = self._looking.at(event, f"{topic}/{offset}")
        return [found] if found is not None else []

    def _look_for_results(self) -> list[Notice]:
        """Check whether results are missing."""
        minutes = self._rules().no_results_minutes
        minutes = self._settings.no_results_minutes if minutes is None else minutes
        return self._silences.look(minutes, now_ms())

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

    def _post(self, name: str, receiver: Receiver, notice: Notice) -> None:
        body = SHAPES[receiver.webhook.shape](notice)
        timeout_s = self._settings.webhook_timeout_s
        try:
            post(receiver.url, body, notice.id, receiver.token, timeout_s)
        except NotTakenError as error:
            old = now_ms() - notice.at_ms > self._settings.webhook_give_up_s * 1000
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


_QUICK = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 200}
