"""Publish events on the bus and read commands: the two things every service does with Kafka.

Events are never dropped: when the client's bounded queue is full, publishing waits for room.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pydantic import BaseModel

from schemas import catalogue, codec, protocol
from services.runtime.clock import Clock, now_ms
from services.runtime.kafka import assigned_consumer, event_producer, watermarks
from services.runtime.settings import ServiceSettings

FLUSH_TIMEOUT_S = 10.0
IDLE_FETCH_MS = 5_000  # commands are rare; the broker answers at once when there is one
# What code raises for values that it was not written for. A record that makes it do so is refused;
# it must not end a service, which would read it again when it starts again.
RECORD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
# Of a dead letter. A record may be as large as the broker and the client take, 1 MB unless told
# otherwise; what wraps it has to be smaller.
MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_REASON_CHARACTERS = 50_000, 900_000, 2_000


@dataclass(frozen=True)
class Refused:
    """What cannot be used and is no record of Kafka. Speaks like one, so that it can become a dead
    letter. source: where it was; part, at: its partition and offset or line, -1: none."""

    source: str
    data: bytes | None
    reason: str
    part: int = -1
    at: int = -1

    def topic(self) -> str:
        """The source."""
        return self.source

    def partition(self) -> int:
        """Its partition, or -1."""
        return self.part

    def offset(self) -> int:
        """Its offset or line, or -1."""
        return self.at

    def key(self) -> None:
        """None."""

    def value(self) -> bytes | None:
        """What there is of it."""
        return self.data


class Events:
    """Publishes results events, dead letters and commands of one service instance."""

    def __init__(self, producer: Producer, name: str, clock: Clock = now_ms) -> None:
        self._producer = producer
        self._clock = clock
        self.name = name
        self.failed = 0

    def publish(self, topic: str, run_id: str, /, **fields: Any) -> None:
        """Publish one event of a `results.*` topic, keyed by run. Raises ValueError when it does
        not fit its schema."""
        head = {"run_id": run_id, "time": self._clock(), "producer": self.name}
        self._send(topic, run_id, codec.encode(catalogue.record_of(topic), head | fields))

    def lifecycle(self, event: str, run_id: str = "", **fields: Any) -> None:
        """Publish a lifecycle event at once. `detail` may be a model or a dict."""
        detail = fields.pop("detail", {})
        text = detail.model_dump_json() if isinstance(detail, BaseModel) else json.dumps(detail)
        self.publish(catalogue.LIFECYCLE, run_id, event=event, detail=text, **fields)
        self.flush()

    def conclusion(
        self, kind: str, run_id: str, reasons: Iterable[str], detail: Mapping[str, Any]
    ) -> None:
        """Publish a conclusion at once: valid where there is no reason against it."""
        found = list(reasons)
        self.publish(
            catalogue.CONCLUSIONS,
            run_id,
            kind=kind,
            valid=not found,
            invalid_reasons=found,
            detail=json.dumps(detail),
        )
        self.flush()

    def command(self, command: str, run_id: str, body: BaseModel) -> None:
        """Issue a command on `control.runs` at once."""
        record = {
            "command_id": str(uuid.uuid4()),
            "run_id": run_id,
            "issued_at": self._clock(),
            "producer": self.name,
            "command": command,
            "body": body.model_dump_json(),
        }
        self._send(catalogue.CONTROL, run_id, codec.encode("control_command", record))
        self.flush()

    def dead_letter(self, message: Message | Refused, reason: str, run_id: str = "") -> None:
        """Keep a record that could not be used, with where it was and why: whole, or the begin of
        one of more than 900 kB, and then the reason says so."""
        key, value = message.key(), message.value()
        for name, whole, most in (("key", key, MAX_KEY_BYTES), ("value", value, MAX_VALUE_BYTES)):
            if whole is not None and len(whole) > most:
                reason = f"its {name} of {len(whole)} bytes is cut to {most}; {reason}"
        record = {
            "run_id": run_id,
            "time": self._clock(),
            "producer": self.name,
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "reason": reason[:MAX_REASON_CHARACTERS],
            "key": key and key[:MAX_KEY_BYTES],
            "value": value and value[:MAX_VALUE_BYTES],
        }
        self._send(catalogue.DEAD_LETTER, run_id, codec.encode("dead_letter", record))

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Wait until what was published is acknowledged; returns how many events are not yet."""
        return int(self._producer.flush(timeout_s))

    def give_up(self, timeout_s: float) -> int:
        """Wait at most `timeout_s` for acknowledgements, then drop what has none; returns how many
        events that were. For events that matter less than ending in time."""
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
    """Events of this service instance on the stack's broker."""
    return Events(event_producer(settings, service), settings.instance or service)


class Commands:
    """Reads `control.runs` from its end; a record that is not a command becomes a dead letter."""

    def __init__(self, consumer: Consumer, events: Events) -> None:
        self._consumer = consumer
        self._events = events
        self._last: Message | None = None

    def poll(self, timeout_s: float) -> dict[str, Any] | None:
        """The next command as a `control_command` record, or None after `timeout_s`."""
        message = self._consumer.poll(timeout_s)
        if message is None or message.error():
            return None
        try:
            name, record = codec.decode(message.value())
            if name != "control_command" or record["command"] not in protocol.COMMANDS:
                raise codec.DecodeError(f"{name} is not a known command")
        except codec.DecodeError as error:
            self._events.dead_letter(message, str(error))
            return None
        self._last = message
        return record

    def refuse(self, error: Exception) -> None:
        """Keep the command that was polled last as a dead letter: it cannot be carried out."""
        if self._last is not None:
            self._events.dead_letter(self._last, f"cannot be carried out: {codec.said_by(error)}")

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()


def open_commands(settings: ServiceSettings, service: str, events: Events) -> Commands:
    """Commands issued from now on. Returns when the position at the end is known."""
    consumer = assigned_consumer(
        settings,
        f"{service}-commands",
        **{"fetch.min.bytes": 1, "fetch.wait.max.ms": IDLE_FETCH_MS},
    )
    position = TopicPartition(catalogue.CONTROL, 0)
    _low, position.offset = watermarks(consumer, position)
    consumer.assign([position])
    return Commands(consumer, events)
