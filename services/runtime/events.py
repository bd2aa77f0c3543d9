"""Publishes events on the bus and reads commands.

Events are never dropped: if the client's bounded queue is full, publishing blocks.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from schemas import catalogue, codec
from schemas.commands import Command, Malformed, decode
from schemas.events import Event
from services.runtime.kafka import assigned_consumer, event_producer, watermarks
from services.runtime.process import Clock, now_ms
from services.runtime.settings import ServiceSettings

FLUSH_TIMEOUT_S = 10.0
IDLE_FETCH_MS = 5_000  # with one byte as minimum the broker responds as soon as there is a record
# Limits of a dead letter. A record may be as large as the broker and the client accept, 1 MB by
# default; the dead letter that contains it must be smaller.
MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_REASON_CHARACTERS = 50_000, 900_000, 2_000
MAX_LETTERS = 1_000  # of a run: of each output topic, and of each pipeline


@dataclass(frozen=True)
class DeadLetter:
    """An unusable record. topic: or another origin, such as a file; partition, offset: or the line
    of a file, else -1."""

    topic: str
    value: bytes | None
    reason: str
    partition: int = -1
    offset: int = -1
    key: bytes | None = None


def dead_letter_of(message: Message, reason: str) -> DeadLetter:
    """An unusable record of Kafka."""
    place = message.partition(), message.offset()
    return DeadLetter(message.topic(), message.value(), reason, *place, message.key())


class EventSink(Protocol):
    """What takes the events of a part: the bus (`Events`), or the part's own process."""

    failed: int

    def publish(self, event: Event, *, flush: bool = True) -> None:
        """Take an event."""

    def publish_figures(self, topic: str, run_id: str, /, **fields: Any) -> None:
        """Take figures of a run."""

    def send(self, command: Command) -> None:
        """Take a command."""

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Wait until all of these are kept; returns the number of those that are not."""


class Events:
    """Publishes results events, dead letters and commands of one service instance."""

    def __init__(self, producer: Producer, name: str, clock: Clock = now_ms) -> None:
        self._producer = producer
        self._clock = clock
        self.name = name
        self.failed = 0

    def publish(self, event: Event, *, flush: bool = True) -> None:
        """Publish an event, keyed by run."""
        record = event.record(self.name, self._clock())
        name = catalogue.record_of(event.TOPIC)
        self._send(event.TOPIC, event.run_id, codec.encode(name, record))
        if flush:
            self.flush()

    def publish_figures(self, topic: str, run_id: str, /, **fields: Any) -> None:
        """Publish figures, keyed by run. Raises ValueError if it does not fit its
        schema."""
        head = {"run_id": run_id, "time": self._clock(), "producer": self.name}
        self._send(topic, run_id, codec.encode(catalogue.record_of(topic), head | fields))

    def send(self, command: Command) -> None:
        """Send a command and flush it."""
        record = command.record(self.name, self._clock())
        self._send(command.TOPIC, command.run_id, codec.encode("control_command", record))
        self.flush()

    def dead_letter(self, letter: DeadLetter, run_id: str = "") -> None:
        """Store an unusable record with its position and the reason. Values above 900 kB are
        truncated, which the reason says."""
        key, value, reason = letter.key, letter.value, letter.reason
        for name, whole, most in (("key", key, MAX_KEY_BYTES), ("value", value, MAX_VALUE_BYTES)):
            if whole is not None and len(whole) > most:
                reason = f"its {name} of {len(whole)} bytes was truncated to {most}; {reason}"
        record = {
            "run_id": run_id,
            "time": self._clock(),
            "producer": self.name,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": reason[:MAX_REASON_CHARACTERS],
            "key": key and key[:MAX_KEY_BYTES],
            "value": value and value[:MAX_VALUE_BYTES],
        }
        self._send(catalogue.DEAD_LETTER, run_id, codec.encode("dead_letter", record))

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Wait for acknowledgements; returns the number of unacknowledged events."""
        return int(self._producer.flush(timeout_s))

    def give_up(self, timeout_s: float) -> int:
        """Wait at most `timeout_s` for acknowledgements, then drop the other events and return
        their number. For events that matter less than ending in time."""
        left = self.flush(timeout_s)
        self._producer.purge()
        self.flush(0)
        return left

    def _send(self, topic: str, key: str, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key.encode(), on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed += 1


def open_events(settings: ServiceSettings, service: str) -> Events:
    """The events client of this service instance."""
    return Events(event_producer(settings, service), settings.instance or service)


class Commands:
    """Reads `control.runs` from its end; a record that is not a command becomes a dead letter."""

    def __init__(self, consumer: Consumer, events: Events) -> None:
        self._consumer = consumer
        self._events = events

    def poll(self, timeout_s: float) -> Command | Malformed | None:
        """The next command, or None after `timeout_s`. A malformed one becomes a dead letter and is
        returned too, so that its run can be failed."""
        # `Consumer.poll` wakes up every 200 ms to check for signals; `consume` does not.
        message = next(iter(self._consumer.consume(1, timeout_s)), None)
        if message is None or message.error():
            return None
        try:
            command = decode(message.value())
        except codec.DecodeError as error:
            self._events.dead_letter(dead_letter_of(message, str(error)))
            return None
        if isinstance(command, Malformed):
            self._events.dead_letter(dead_letter_of(message, command.reason), command.run_id)
        return command

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def open_commands(settings: ServiceSettings, service: str, events: Events) -> Commands:
    """Commands sent from now on. Returns once the end position is known."""
    consumer = assigned_consumer(
        settings,
        f"{service}-commands",
        **{"fetch.min.bytes": 1, "fetch.wait.max.ms": IDLE_FETCH_MS},
    )
    position = TopicPartition(catalogue.CONTROL, 0)
    _low, position.offset = watermarks(consumer, position)
    consumer.assign([position])
    return Commands(consumer, events)
