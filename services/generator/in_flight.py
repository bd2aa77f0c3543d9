"""Which messages the client may have: no more partitions at once than it has requests for.

An idempotent producer of librdkafka keeps at most five requests in flight to a broker, and while
messages wait for a sixth its thread asks again without pause ("make the next wakeup immediate",
rdkafka_broker.c). A broker that takes longer than usual then costs the generator a whole core, on
the very machine that has none to spare. So messages wait here, and what waits for a partition goes
to it in one batch once a partition before it is acknowledged: the busier the broker, the larger
the batches.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.generator.message_batch import MESSAGE, MessageBatch

# Of five, as a batch may leave in two requests: its first message does not wait for the others.
PARTITIONS_IN_FLIGHT = 3
_WHOLE = f"V{MESSAGE.itemsize}"

Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True)
class Part:
    """Messages for one partition, in order, and the batch whose memory they point into."""

    batch: MessageBatch
    messages: Any
    since_s: float


class InFlight:
    """What waits, by partition, and which partitions have messages under way. Any thread.

    places: how many may have some under way at once; None: nothing waits. batch_records: bound of
    a batch. timeout_s: what has waited longer than this has failed.
    """

    def __init__(
        self,
        places: int | None,
        batch_records: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.Lock()
        self._places = places
        self._batch_records = batch_records
        self._timeout_s = timeout_s
        self._clock = clock
        self._waiting: dict[Place, deque[Part]] = {}
        self._turns: deque[Place] = deque()  # those that wait and have nothing under way
        self._under_way: dict[Place, int] = {}

    def put(self, place: Place, batch: MessageBatch, messages: Any) -> None:
        """Let messages of a batch wait for their turn."""
        parts = self._waiting.setdefault(place, deque())
        if not parts and (self._places is None or place not in self._under_way):
            self._turns.append(place)
        parts.append(Part(batch, messages, self._clock()))

    def take(self) -> tuple[Place, list[Part]] | None:
        """The next batch to hand over, now under way; None when nothing may go."""
        full = self._places is not None and len(self._under_way) >= self._places
        if full or not self._turns:
            return None
        place = self._turns.popleft()
        parts = self._waiting[place]
        batch = [parts.popleft()]
        records = len(batch[0].messages)
        while parts and records + len(parts[0].messages) <= self._batch_records:
            records += len(parts[0].messages)
            batch.append(parts.popleft())
        if not parts:
            del self._waiting[place]
        elif self._places is None:
            self._turns.append(place)
        self._under_way[place] = self._under_way.get(place, 0) + records
        return place, batch

    def done(self, place: Place, records: int) -> None:
        """Messages of a partition are not under way any more."""
        left = self._under_way[place] - records
        if left > 0:
            self._under_way[place] = left
            return
        del self._under_way[place]
        if place in self._waiting:
            self._turns.append(place)

    def expired(self, parts: list[Part]) -> bool:
        """Whether a batch has waited so long that its messages have failed."""
        return self._clock() - parts[-1].since_s > self._timeout_s

    def clear(self) -> list[Part]:
        """Forget what waits; returns it."""
        parts = [part for waiting in self._waiting.values() for part in waiting]
        self._waiting.clear()
        self._turns.clear()
        return parts


def joined(parts: list[Part]) -> Any:
    """The messages of a batch as one array. They are copied as they lie in memory: NumPy would
    leave out the gaps between their fields."""
    if len(parts) == 1:
        return parts[0].messages
    whole = [np.ascontiguousarray(part.messages).view(_WHOLE) for part in parts]
    return np.concatenate(whole).view(MESSAGE)
