"""The projector starts at the bus's end offsets at that time, even while records arrive."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Message

from schemas.catalogue import DEAD_LETTER
from services.store.projection.projector import Projector
from services.store.settings import StoreSettings
from services.store.tables import POSITIONS

pytestmark = pytest.mark.unit

PLACE = (DEAD_LETTER, 0)


def letter(offset: int) -> Message:
    """A dead letter at this offset that cannot be decoded."""
    return Message(
        topic=DEAD_LETTER, partition=0, offset=offset, value=b"no dead letter", timestamp=(2, 0)
    )


class Engine:
    """Stores the position of the table of dead letters."""

    def __init__(self) -> None:
        self.positions: dict[tuple[str, int], int] = {}
        self.released = 0

    def release_memory(self) -> None:
        self.released += 1

    def rows(self, sql: str) -> list[dict[str, object]]:
        if "projection_progress" not in sql:
            return []
        return [
            {"topic": topic, "partition": partition, "next_offset": at}
            for (topic, partition), at in self.positions.items()
        ]

    def insert(self, table: str, block: pa.Table) -> None:
        if table != POSITIONS:
            for row in block.to_pylist():
                self.positions[row["_topic"], row["_partition"]] = row["_offset"] + 1


class GrowingBus:
    """One partition of undecodable dead letters; each poll returns one more than there were when
    its end offset was queried."""

    def __init__(self) -> None:
        self.end = 3
        self._next = 0

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {PLACE: (0, self.end)}

    def begin(self, offsets: dict[tuple[str, int], int]) -> None:
        self._next = offsets[PLACE]

    def poll(self, _seconds: float, _stopped: object) -> list[Message]:
        self.end += 1
        found = range(self._next, self.end)
        self._next = self.end
        return [letter(offset) for offset in found]

    def first(self, _place: object) -> int:
        return 0

    def behind(self, _place: object, offset: int) -> int:
        return self.end - offset

    def has_more_than(self, _known: object) -> bool:
        return False


def test_dead_letters_that_arrive_while_it_resumes_are_of_the_same_bus():
    events = SimpleNamespace(name="store", lifecycle=lambda *_a, **_k: None)
    projector = Projector(Engine(), GrowingBus(), events, StoreSettings(), clock=lambda: 0)
    projector.resume()
    assert projector.positions() == {PLACE: 4}


def test_free_memory_is_released_once_a_minute():
    now_ms, engine = [0], Engine()
    events = SimpleNamespace(name="store", lifecycle=lambda *_a, **_k: None)
    projector = Projector(engine, GrowingBus(), events, StoreSettings(), clock=lambda: now_ms[0])
    projector.resume()
    for now_ms[0] in (59_000, 60_000, 61_000, 119_000, 120_000):
        projector.step()
    assert engine.released == 2
