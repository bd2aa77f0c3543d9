"""Results of a system behind sockets: appended and counted as they arrive, in any batches."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from schemas.engine import SocketPlan
from schemas.frame import END, HELLO, LENGTH, STAMP, STAMP_HEADER, Frame, encode
from schemas.pipeline import Pipeline
from services.external_pipeline.sockets.__main__ import ReceivedResults
from services.runtime.frame_batches import ReceivedFrames
from services.runtime.frame_receivers import Receiver, Refusal
from tests.unit.external_pipeline.test_external import a_plan

pytestmark = pytest.mark.unit

TAG = b"tag of r"


class Arriving(Receiver):
    """A receiver of prepared batches, one a call."""

    def __init__(self, *batches: ReceivedFrames | Refusal) -> None:
        self.turned_away = 0
        self.batches = list(batches)
        self.bounds_kept = 0

    def receive_all(self, timeout_s: float) -> Iterator[ReceivedFrames | Refusal]:
        yield self.batches.pop(0)

    def keep_bounds(self) -> None:
        self.bounds_kept += 1

    def close(self) -> None:
        pass


class Records:
    """A producer that keeps records, and is full before each `full_every`th."""

    def __init__(self, full_every: int = 0) -> None:
        self.kept: list[tuple[str, bytes, bytes, int]] = []
        self._full_every = full_every
        self._has_room = False

    def produce(self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, Any]]) -> None:
        ((name, stamp),) = headers
        assert name == STAMP_HEADER
        if self._full_every and len(self.kept) % self._full_every == 0 and not self._has_room:
            raise BufferError
        self._has_room = False
        self.kept.append((topic, key, value, STAMP.unpack(stamp)[0]))

    def poll(self, timeout_s: float) -> None:
        self._has_room = timeout_s > 0


def results_of(receiver: Receiver, producer: Any) -> ReceivedResults:
    plan = a_plan(Pipeline(name="mine", summary="-", engine="socket"))
    sockets = SocketPlan(
        transport="tcp",
        answers="tcp",
        host="127.0.0.1",
        system_port=1,
        results_port=2,
        tag=TAG.hex(),
    )
    return ReceivedResults(plan, sockets, receiver, producer)


def result(stage: int, number: int, topic: int | None = None, value: bytes = b"") -> bytes:
    place = stage if topic is None else topic
    return encode(Frame(TAG, stage, place, number, 0, b"key %d" % number, value or b"v%d" % number))


@pytest.mark.parametrize("seed", range(20))
def test_each_result_is_appended_once_and_all_are_counted(seed: int) -> None:
    """Stage 0 sends 300 results of which 3 are lost, stage 1 sends 100; repeated ones, other data
    and the announced numbers are among them."""
    random = Random(seed)
    numbers = {0: [n for n in range(300) if n not in (5, 100, 299)], 1: list(range(100))}
    frames = [result(stage, n) for stage, sent in numbers.items() for n in sent]
    random.shuffle(frames)
    frames[200:200] = frames[:7]
    frames += [
        result(0, 0, HELLO),
        result(2, 0, 1),  # no stage of the run
        encode(Frame(b"tag of q", 0, 0, 299, 0, b"", b"")),
        b"short",
        result(0, 300, END, STAMP.pack(450)),
        result(1, 100, END, STAMP.pack(450)),
    ]
    whole = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    batches: list[ReceivedFrames | Refusal] = [Refusal(b"x", "no frame")]
    at, rest = 0, b""
    while at < len(whole):
        size = random.randint(1, 2_000)
        batches.append(ReceivedFrames.of_stream(rest + whole[at : at + size], len(batches)))
        rest = batches[-1].data[batches[-1].rest :]
        at += size
    count = len(batches)
    producer, receiver = Records(full_every=50), Arriving(*batches)
    results = results_of(receiver, producer)
    assert results.news() is None
    for _ in range(count):
        results.take(0.0)
    expected = {
        (f"output.mine.{stage}", b"key %d" % n, b"v%d" % n)
        for number, stage in enumerate(("ingest", "parse"))
        for n in numbers[number]
    }
    assert len(producer.kept) == len(expected) == 397
    assert {record[:3] for record in producer.kept} == expected
    stamps = [record[3] for record in producer.kept]
    assert stamps == sorted(stamps)
    assert 1 <= stamps[0] <= stamps[-1] < count
    assert receiver.bounds_kept == 8
    line = results.line()
    assert (line.sent, line.received) == (
        {"ingest": 300, "parse": 100},
        {"ingest": 297, "parse": 100},
    )
    assert (line.duplicates, line.refused, line.frames_received) == (7, 4, 450)
