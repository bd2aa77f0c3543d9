"""The bus: publishes events, reads commands, and reads the results.

Events are never dropped: if the client's bounded queue is full, publishing blocks.

`Bus` reads results: what exists, for a process that starts during a run, and what is published from
now on.

    bus = Bus(settings, "conductor", ("results.lifecycle",), events)
    for event in bus.poll(timeout_s=0.1): ...
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from schemas import catalogue, codec
from schemas.commands import (
    Command,
    Drain,
    Malformed,
    Measure,
    Prepare,
    Start,
    Stop,
    decode,
    from_record,
)
from schemas.events import BusEvent, Event, check_figures, read_event
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    assigned_consumer,
    end_offsets,
    ends_of,
    event_producer,
    partition_ids,
    watermarks,
)
from services.runtime.process import Clock, now_ms
from services.runtime.settings import ServiceSettings

FLUSH_TIMEOUT_S = 10.0
IDLE_FETCH_MS = 5_000  # with one byte as minimum the broker responds as soon as there is a record
# Limits of a dead letter. A record may be as large as the broker and the client accept, 1 MB by
# default; the dead letter that contains it must be smaller.
MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_REASON_CHARACTERS = 50_000, 900_000, 2_000
MAX_LETTERS = 1_000  # of a run: of each output topic, and of each pipeline
REST_POLL_S = 0.1
MAX_RECORDS = 1_000
_QUICK = {
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": IDLE_FETCH_MS,
    # A suite does not read its bus during a run. The default is 64 MB of unread events.
    "queued.max.messages.kbytes": 1024,
    "fetch.queue.backoff.ms": 200,  # until the next fetch once that much is unread
}
MAX_COMMANDS = 10_000  # newest commands to read; a run has a handful
ABANDONED_MS = 600_000  # a run this long overdue is abandoned
READ_S = 0.1
_RECORDS = {catalogue.CONTROL: "control_command", catalogue.DEAD_LETTER: "dead_letter"}
Record = dict[str, Any]
Spans = dict[tuple[str, int], tuple[int, int]]
"""First and end offset by topic and partition."""


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


class EventProducer(Protocol):
    """What `Events` needs of a `confluent_kafka.Producer`."""

    def produce(
        self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[..., None]
    ) -> None:
        """Queue a record. Raises BufferError if the queue is full."""

    def poll(self, timeout: float) -> int:
        """Wait for acknowledgements."""

    def flush(self, timeout: float) -> int:
        """Wait until all are acknowledged; returns how many are not."""

    def purge(self) -> None:
        """Drop what is queued."""


class Events:
    """Publishes results events, dead letters and commands of one service instance."""

    def __init__(self, producer: EventProducer, name: str, clock: Clock = now_ms) -> None:
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


class Bus:
    """Events of some `results.*` topics, published after this object was made. One thread.

    name: of the reader, in the broker's logs. events: receives records that are not events as dead
    letters; None if another reader does that.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        name: str,
        topics: Iterable[str],
        events: Events | None = None,
        open_consumer: Callable[..., Consumer] = assigned_consumer,
    ) -> None:
        self._consumer = open_consumer(settings, f"{name}-bus", **_QUICK)
        # The broker answers a client's requests in order, so offset queries must not wait for a
        # fetch.
        self._asking = open_consumer(settings, f"{name}-bus-offsets")
        self._events = events
        self._topics = tuple(topics)
        self._next = self.ends(self._topics)
        self._consumer.assign([TopicPartition(*key, offset) for key, offset in self._next.items()])

    def poll(self, timeout_s: float) -> list[BusEvent]:
        """Events that have arrived, after waiting at most `timeout_s`."""
        events = []
        for message in self._consumer.consume(MAX_RECORDS, timeout_s):
            if message.error():
                continue
            topic = message.topic()
            self._next[topic, message.partition()] = message.offset() + 1
            try:
                events.append(read_event(topic, message.value()))
            except codec.DecodeError as error:
                if self._events is not None:
                    self._events.dead_letter(dead_letter_of(message, str(error)))
        return events

    def rest(self) -> Iterator[BusEvent]:
        """Events published until now and not returned yet. Reads up to the end offsets at the time
        of the call, because a busy topic never ends."""
        ends = self.ends(self._topics)
        while any(self._next[place] < end for place, end in ends.items()):
            yield from self.poll(REST_POLL_S)

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Current end offset of every partition of some topics."""
        return ends_of(self._asking, topics)

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
        self._asking.close()


def unfinished(commands: list[Command | Malformed], now_ms: int) -> list[Command | Malformed]:
    """The `prepare` of the newest run and the commands about it since, unless it has been stopped
    or abandoned; then none. `commands` in topic order."""
    of_run: list[Command | Malformed] = []
    for command in commands:
        is_of_run = bool(of_run) and command.run_id == of_run[0].run_id
        match command:
            case Prepare():
                of_run = [command]
            case Stop() if is_of_run:
                of_run = []
            case Start() | Measure() | Drain() | Malformed() if is_of_run:
                of_run.append(command)
    return [] if _is_abandoned(of_run, now_ms) else of_run


def read_commands(settings: ServiceSettings, client: str) -> tuple[list[Command | Malformed], int]:
    """The newest commands, in topic order, and the offset after them.

    client: name of the reading client. Raises NoTopicError if the topic does not exist,
    KafkaUnavailableError or KafkaException if the broker does not respond.
    """
    consumer = assigned_consumer(settings, client, **{"fetch.min.bytes": 1})
    try:
        (end,) = end_offsets(consumer, catalogue.CONTROL)
        begin = max(0, end - MAX_COMMANDS)
        messages = read_spans(consumer, {(catalogue.CONTROL, 0): (begin, end)})
        return [from_record(record) for _name, record in decoded(messages)], end
    finally:
        consumer.close()


def spans_since(consumer: Consumer, topic: str, since_ms: int) -> Spans:
    """Offset spans appended to each partition of a topic since a time, epoch milliseconds."""
    ends = end_offsets(consumer, topic)
    asked = [
        TopicPartition(topic, partition_id, since_ms)
        for partition_id in partition_ids(consumer, topic)
    ]
    begins = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S)
    return {
        (topic, each.partition): (each.offset if each.offset >= 0 else end, end)
        for each, end in zip(begins, ends, strict=True)
    }


def read_spans(
    consumer: Consumer, spans: Spans, timeout_s: float = KAFKA_TIMEOUT_S
) -> Iterator[Message]:
    """Every record of some spans that is still retained. Raises KafkaUnavailableError if none
    arrives within the timeout, KafkaException."""
    left = {
        place: (begin, end)
        for place, (begin, end) in spans.items()
        if begin < end and watermarks(consumer, TopicPartition(*place))[0] < end
    }
    consumer.assign([TopicPartition(*place, begin) for place, (begin, _end) in left.items()])
    deadline_s = time.monotonic() + timeout_s
    while left:
        if time.monotonic() > deadline_s:
            raise KafkaUnavailableError(f"the records of {sorted(left)} did not arrive")
        for message in consumer.consume(10_000, READ_S):
            deadline_s = time.monotonic() + timeout_s
            place = (message.topic(), message.partition())
            if message.error() is not None or place not in left:
                continue
            if message.offset() < left[place][1]:
                yield message
            if message.offset() + 1 >= left[place][1]:
                del left[place]


def decoded(messages: Iterator[Message]) -> Iterator[tuple[str, Record]]:
    """Schema name and record of each valid event. Others are skipped: the topic's owner handles
    them."""
    for message in messages:
        topic = message.topic()
        name = _RECORDS.get(topic) or catalogue.record_of(topic)
        try:
            record = codec.decode_as(name, message.value())
            check_figures(topic, record)
        except codec.DecodeError:
            continue  # the topic's owner writes the dead letter
        yield name, record


def _is_abandoned(of_run: list[Command | Malformed], now_ms: int) -> bool:
    if not of_run or not isinstance(of_run[0], Prepare):
        return False
    ends_ms = of_run[0].issued_at
    for command in of_run:
        if isinstance(command, Start | Measure):
            ends_ms = command.phases.load_end_ms
    give_up_ms = of_run[0].plan.request.workload.judgement.give_up_ms
    return bool(ends_ms + give_up_ms + ABANDONED_MS < now_ms)
