"""What a process that starts in the middle of a run has to know: the commands of that run, and
what of it is on the bus already."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition
from pydantic import ValidationError

from schemas import catalogue, codec
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.columns import Ints
from services.evaluator.pair_log import places
from services.evaluator.published import COUNTED
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    assigned_consumer,
    end_offsets,
    partition_ids,
)
from services.runtime.settings import ServiceSettings

MAX_COMMANDS = 10_000  # looked back at; a run is a handful
ABANDONED_MS = 600_000  # a run that should have ended this long ago has nobody who leads it
CLOCKS_APART_MS = 60_000  # of the brokers that lead the topics of results
READ_S = 0.1

Record = dict[str, Any]


@dataclass
class Published:
    """What one evaluator has published of one run: counted events, and the places (topic,
    partition, offset) of dead letters. Pairs take 8 bytes each."""

    events: list[tuple[str, Record]] = field(default_factory=list)
    dead_letters: set[tuple[str, int, int]] = field(default_factory=set)
    _pairs: dict[tuple[str, str], list[Ints]] = field(default_factory=dict)

    def add_pairs(self, record: Record) -> None:
        """Take in one event of pairs."""
        where = (np.array(record[name], np.int64) for name in ("partitions", "offsets"))
        known = self._pairs.setdefault((record["pipeline"], record["stage"]), [])
        known.append(places(*where))

    def pairs(self) -> dict[tuple[str, str], Ints]:
        """Sorted places of the outputs whose pairs were published, by pipeline and stage."""
        return {where: np.unique(np.concatenate(parts)) for where, parts in self._pairs.items()}


def unfinished(commands: list[Record], now_ms: int) -> list[Record]:
    """The commands prepare, start and drain, as far as they were given, of the newest run that
    was not stopped; none when that run is over or abandoned. `commands` in topic order."""
    mine: list[Record] = []
    for command in commands:
        if command["command"] == "prepare":
            mine = [command]
        elif mine and command["run_id"] == mine[0]["run_id"]:
            if command["command"] == "stop":
                mine = []
            elif command["command"] in ("start", "drain"):
                mine.append(command)
    return [] if not mine or _abandoned(mine, now_ms) else mine


def _abandoned(mine: list[Record], now_ms: int) -> bool:
    try:
        plan = RunPlan.model_validate_json(mine[0]["body"])
        ends_ms = mine[0]["issued_at"]
        for command in mine:
            if command["command"] == "start":
                ends_ms = PhasePlan.model_validate_json(command["body"]).load_end_ms
    except ValidationError:
        return True  # that run has failed for its own reason
    return bool(ends_ms + plan.request.workload.judgement.give_up_ms + ABANDONED_MS < now_ms)


def read_commands(settings: ServiceSettings) -> tuple[list[Record], int]:
    """The newest commands, in topic order, and the offset after them."""
    consumer = assigned_consumer(settings, "evaluator-history", **{"fetch.min.bytes": 1})
    try:
        (end,) = end_offsets(consumer, catalogue.CONTROL)
        begin = max(0, end - MAX_COMMANDS)
        messages = _read(consumer, {(catalogue.CONTROL, 0): (begin, end)})
        found = [record for name, record in _decoded(messages) if name == "control_command"]
        return found, end
    finally:
        consumer.close()


def read_published(
    settings: ServiceSettings, run_id: str, producer: str | None, since_ms: int
) -> Published:
    """What `producer`, or whoever, has published of a run prepared at `since_ms` (epoch ms)."""
    wanted = (*COUNTED, catalogue.DEAD_LETTER, catalogue.PAIRS)
    consumer = assigned_consumer(settings, "evaluator-history", **{"fetch.min.bytes": 1})
    found = Published()
    try:
        spans = {}
        for topic in wanted:
            spans.update(_span(consumer, topic, since_ms - CLOCKS_APART_MS))
        for name, record in _decoded(_read(consumer, spans)):
            if record["run_id"] != run_id or producer not in (None, record["producer"]):
                continue
            if name == "dead_letter":
                place = (record["topic"], record["partition"], record["offset"])
                found.dead_letters.add(place)
            elif name == catalogue.record_of(catalogue.PAIRS):
                found.add_pairs(record)
            else:
                found.events.append((name.replace("_", ".", 1), record))
    finally:
        consumer.close()
    return found


def _span(consumer: Consumer, topic: str, since_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
    """First and next offset of each partition, of what was appended since a time."""
    ends = end_offsets(consumer, topic)
    asked = [TopicPartition(topic, one, since_ms) for one in partition_ids(consumer, topic)]
    begins = consumer.offsets_for_times(asked, KAFKA_TIMEOUT_S)
    return {
        (topic, one.partition): (one.offset if one.offset >= 0 else end, end)
        for one, end in zip(begins, ends, strict=True)
    }


def _read(consumer: Consumer, spans: dict[tuple[str, int], tuple[int, int]]) -> Iterator[Message]:
    """Every record of some spans. Raises KafkaUnavailableError when they do not come."""
    left = {place: span for place, span in spans.items() if span[0] < span[1]}
    consumer.assign([TopicPartition(*place, begin) for place, (begin, _end) in left.items()])
    deadline_s = time.monotonic() + KAFKA_TIMEOUT_S
    while left:
        if time.monotonic() > deadline_s:
            raise KafkaUnavailableError(f"the records of {sorted(left)} did not come")
        for message in consumer.consume(10_000, READ_S):
            deadline_s = time.monotonic() + KAFKA_TIMEOUT_S
            place = (message.topic(), message.partition())
            if message.error() is not None or place not in left:
                continue
            if message.offset() < left[place][1]:
                yield message
            if message.offset() + 1 >= left[place][1]:
                del left[place]


def _decoded(messages: Iterator[Message]) -> Iterator[tuple[str, Record]]:
    for message in messages:
        try:
            yield codec.decode(message.value())
        except codec.DecodeError:
            continue  # the owner of the topic keeps the dead letter
