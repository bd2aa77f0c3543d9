"""Prepare records ahead of their time, so that encoding never delays the schedule."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from schemas.catalogue import FLOW, SPEED, record_of
from services.generator import pacing
from services.generator.content import KINDS, Kind, Layout, Stamps, lay_out, observations
from services.generator.curves import SECOND_US
from services.generator.encoding import encode_batch
from services.generator.pacing import Slice
from services.generator.sample import Sample
from services.generator.shapes import LoadShape

TOPICS: dict[Kind, str] = {"flow": FLOW, "speed": SPEED}
AHEAD_SLICES = 4
LAYOUTS_KEPT = 4  # a constant rate needs two: its whole numbers around


@dataclass(frozen=True)
class Prepared:
    """A slice as it goes out; all sequences have `slice.records` elements.

    scheduled_us: epoch microseconds. Even positions are flow records, odd ones speed.
    """

    slice: Slice
    keys: list[bytes]
    values: list[bytes]
    scheduled_us: list[int]


class Content:
    """A sample and the layouts made of it, kept because every second of a load uses the same."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.layout = lru_cache(LAYOUTS_KEPT)(self._lay_out)

    def _lay_out(self, records_in_second: int) -> Layout:
        return lay_out(self.sample, records_in_second)


class Load:
    """Everything that determines the records of a load: they are a pure function of this."""

    def __init__(
        self, content: Content, shape: LoadShape, run_id: str, load_start_ms: int, seconds: int
    ) -> None:
        self.shape = shape
        self.load_start_ms = load_start_ms
        self.seconds = seconds
        self.records = shape.due(seconds * SECOND_US - 1)
        self._content = content
        self._run_id = run_id

    def prepare(self, part: Slice) -> Prepared:
        """Encode one slice."""
        sample, layout = self._content.sample, self._content.layout(part.records_in_second)
        sequences = np.arange(part.first, part.end, dtype=np.int64)
        scheduled_us = self.shape.scheduled_us(sequences) + self.load_start_ms * 1000
        values: list[bytes] = [b""] * part.records
        for number, kind in enumerate(KINDS):
            own = slice(number, None, 2)
            stamps = Stamps(
                run_id=self._run_id,
                minute=part.second % sample.minutes,
                observed_at_ms=self.load_start_ms + 1000 * part.second,
                sequences=sequences[own],
                scheduled_at_us=scheduled_us[own],
            )
            first_lane = part.offset // 2
            lanes = slice(first_lane, first_lane + len(stamps.sequences))
            batch = observations(sample, layout, kind, lanes, stamps)
            values[own] = encode_batch(record_of(TOPICS[kind]), batch)
        records = range(part.offset, part.offset + part.records)
        keys = [layout.keys[record // 2] for record in records]
        return Prepared(part, keys, values, scheduled_us.tolist())


class Ahead:
    """Prepares the slices of a load in a thread of its own, at most AHEAD_SLICES ahead."""

    def __init__(self, load: Load, stop: threading.Event) -> None:
        self._load = load
        self._stop = stop
        self._ready: queue.Queue[Prepared | Exception | None] = queue.Queue(AHEAD_SLICES)
        threading.Thread(target=self._work, name="ahead", daemon=True).start()

    def __iter__(self) -> Iterator[Prepared]:
        """The slices in order; ends early when stopped. Raises what preparing raised."""
        while not self._stop.is_set():
            try:
                item = self._ready.get(timeout=0.1)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def _work(self) -> None:
        try:
            for part in pacing.slices(self._load.shape, self._load.seconds):
                if not self._put(self._load.prepare(part)):
                    return
            self._put(None)
        except Exception as error:  # carried over to the thread that sends, which ends the run
            self._put(error)

    def _put(self, item: Prepared | Exception | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
