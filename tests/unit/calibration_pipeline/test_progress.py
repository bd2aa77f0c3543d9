"""The progress lines of the calibration pipeline: read and unread records of each stage's
inputs."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from services.calibration_pipeline.progress import Progress, Reading
from services.definitions.domains import load_domain

pytestmark = pytest.mark.unit

GEM_PACKS = load_domain("gem_packs").spec

PURCHASES, ADS = "gem_packs.purchases", "gem_packs.ads"


# Position of the consumer and end offset of each partition; one has not been read yet.
PLACES = {(PURCHASES, 0): (90, 100), (PURCHASES, 1): (-1001, -1001), (ADS, 0): (7, 10)}


class Consumer:
    """A consumer of these partitions."""

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in PLACES]

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self._at(p)[0]) for p in places]

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self._at(place)[1]

    def _at(self, place: TopicPartition) -> tuple[int, int]:
        return PLACES[place.topic, place.partition]


class Voice:
    """Collects the output lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def progress(self, **fields: Any) -> None:
        self.lines.append(fields)


def test_a_stage_is_told_of_its_own_inputs_once_a_second() -> None:
    plan = SimpleNamespace(domain=GEM_PACKS, outputs={"parse": "o.parse", "revenue": "o.revenue"})
    voice, clock = Voice(), [5.0]
    progress = Progress(plan, voice, Consumer(), lambda: clock[0])  # type: ignore[arg-type]
    for topic in (PURCHASES, PURCHASES, ADS):
        progress.count(topic)
    for now_s in (5.9, 6.0, 6.1, 7.0):
        clock[0] = now_s
        progress.say()
    assert voice.lines == [
        {"stage": "parse", "input_rows": 3, "lag_records": 13},
        {"stage": "revenue", "input_rows": 2, "lag_records": 10},
        {"stage": "parse", "input_rows": 0, "lag_records": 13},
        {"stage": "revenue", "input_rows": 0, "lag_records": 10},
    ]


class Record:
    """A record of the first partition of ads."""

    def __init__(self, offset: int, appended_ms: int) -> None:
        self.offset = lambda: offset
        self.timestamp = lambda: (2, appended_ms)

    def topic(self) -> str:
        return ADS

    def partition(self) -> int:
        return 0


def test_windows_are_not_closed_before_what_was_appended_until_then_is_read() -> None:
    reading = Reading(Consumer(), {ADS: [7]})  # type: ignore[arg-type]
    reached = []
    for offset in (8, 9):
        reached.append(reading.reached_ms(9_000))
        reading.read(Record(offset, 1_000 + offset))  # type: ignore[arg-type]
    assert [*reached, reading.reached_ms(9_000)] == [0, 1_008, 9_000]
    unknown = Reading(Consumer(), {PURCHASES: [100, 100]})  # type: ignore[arg-type]
    assert unknown.reached_ms(9_000) == 0
