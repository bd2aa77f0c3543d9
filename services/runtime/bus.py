"""Reads the results bus: what exists, for a process that starts during a run, and what is published
from now on.

bus = Bus(settings, "conductor", ("results.lifecycle",), events)
for event in bus.poll(timeout_s=0.1): ...
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from schemas import catalogue, codec
from schemas.commands import Command, Drain, Malformed, Measure, Prepare, Start, Stop, from_record
from schemas.events import BusEvent, check_figures, read_event
from services.runtime.events import IDLE_FETCH_MS, Events, dead_letter_of
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    assigned_consumer,
    end_offsets,
    ends_of,
    partition_ids,
    watermarks,
)
from services.runtime.settings import ServiceSettings

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
