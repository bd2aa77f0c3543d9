"""Counts the frames of a run by stream and sequence.

A frame is lost if it was sent and never arrived. A frame that arrives twice counts once.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.frame import END, MAX_STREAMS, Frame
from schemas.percentiles import quantile

# One bit per frame, enough for half a billion frames. Larger runs are not counted exactly.
MAX_MARK_BYTES = 64 * 1024 * 1024
LEVELS = {"p50": 0.5, "p99": 0.99, "max": 1.0}
TRANSIT_STEP_NS = 1_000


class Arrivals:
    """Counts of one run. refused: data that is not a frame of the run; duplicates: repeated
    frames. max_bytes: of the bitmaps of all streams. timed: whether frames carry a send time by the
    clock of `received_ns`."""

    def __init__(self, max_bytes: int = MAX_MARK_BYTES, *, timed: bool = True) -> None:
        self._timed = timed
        self._max_bytes = max_bytes
        self.refused = 0
        self.duplicates = 0
        self._marks: dict[int, bytearray] = {}
        self._last: dict[int, int] = {}
        self._came: Counter[int] = Counter()
        self._sent: dict[int, int] = {}
        self._transit: Counter[int] = Counter()

    def add(self, frame: Frame, received_ns: int) -> bool:
        """Count a frame; True if its record must be appended."""
        if frame.stream >= MAX_STREAMS:
            self.refused += 1
            return False
        if frame.topic == END:
            self._sent[frame.stream] = max(frame.sequence, self._sent.get(frame.stream, 0))
            return False
        marks = self._marks_with(frame.stream, frame.sequence)
        if marks is None:
            self.refused += 1
            return False
        place, bit = frame.sequence >> 3, 1 << (frame.sequence & 7)
        if marks[place] & bit:
            self.duplicates += 1
            return False
        marks[place] |= bit
        self._came[frame.stream] += 1
        self._last[frame.stream] = max(frame.sequence, self._last.get(frame.stream, -1))
        if self._timed:
            self._transit[max(0, received_ns - frame.sent_ns) // TRANSIT_STEP_NS] += 1
        return True

    def add_all(self, heads: NDArray[Any]) -> NDArray[np.bool_]:
        """Count frames with records by their heads (frame_batches.HEADS) as `add` does, without
        transit times; which of them must be appended."""
        is_new = np.zeros(len(heads), bool)
        for stream in np.unique(heads["stream"]).tolist():
            rows = np.flatnonzero(heads["stream"] == stream)
            is_new[rows] = self._add_stream(stream, heads["sequence"][rows].astype(np.uint64))
        return is_new

    def _add_stream(self, stream: int, sequences: NDArray[np.uint64]) -> NDArray[np.bool_]:
        highest = int(sequences.max())
        marks = self._marks_with(stream, highest) if stream < MAX_STREAMS else None
        if marks is None:  # some may still have a place
            return np.array(
                [self.add(Frame(b"", stream, 0, each, 0), 0) for each in sequences.tolist()], bool
            )
        is_first = np.ones(len(sequences), bool)
        if (sequences[1:] <= sequences[:-1]).any():
            is_first[:] = False
            is_first[np.unique(sequences, return_index=True)[1]] = True
        bitmap = np.frombuffer(marks, np.uint8)
        places = (sequences >> np.uint64(3)).astype(np.int64)
        bits = np.uint8(1) << (sequences & np.uint64(7)).astype(np.uint8)
        is_new: NDArray[np.bool_] = is_first & ((bitmap[places] & bits) == 0)
        np.bitwise_or.at(bitmap, places[is_new], bits[is_new])
        count = int(is_new.sum())
        self.duplicates += len(sequences) - count
        self._came[stream] += count
        if count:
            self._last[stream] = max(highest, self._last.get(stream, -1))
        return is_new

    def _marks_with(self, stream: int, sequence: int) -> bytearray | None:
        """The bitmap of a stream, grown to hold the sequence; None above the limit."""
        marks = self._marks.setdefault(stream, bytearray())
        missing = (sequence >> 3) + 1 - len(marks)
        if missing > 0:
            if missing + sum(map(len, self._marks.values())) > self._max_bytes:
                return None
            marks.extend(bytes(missing))
        return marks

    def of_stream(self, stream: int) -> tuple[int | None, int]:
        """Frames sent in a stream, None if it has not announced them, and distinct ones
        received."""
        return self._sent.get(stream), self._came[stream]

    @property
    def received(self) -> int:
        """Distinct frames received."""
        return self._came.total()

    @property
    def ended(self) -> bool:
        """Whether every stream that sent a frame has announced its frame count."""
        return bool(self._sent) and set(self._came) <= set(self._sent)

    @property
    def sent(self) -> int:
        """Frames sent: the announced count of each stream, or the highest sequence received for
        streams that have not announced one."""
        return sum(
            self._sent.get(stream, self._last.get(stream, -1) + 1)
            for stream in {*self._sent, *self._last}
        )

    @property
    def lost(self) -> int:
        """Frames that were sent and did not arrive."""
        return self.sent - self.received

    @property
    def transit_us(self) -> dict[str, int | None]:
        """Time from sender to gateway in microseconds, measured by one clock."""
        return {name: quantile(self._transit, level) for name, level in LEVELS.items()}
