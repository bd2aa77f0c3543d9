"""What came of the frames of one run, by stream and sequence. Pure.

A frame is lost that was sent and never came; a frame that came twice counts once.
"""

from collections import Counter

from schemas.frame import END, Frame
from schemas.percentiles import quantile

MAX_STREAMS = 64
# A bit for each frame: of half a billion frames. A run with more is not counted exactly.
MAX_MARK_BYTES = 64 * 1024 * 1024
LEVELS = {"p50": 0.5, "p99": 0.99, "max": 1.0}
TRANSIT_STEP_NS = 1_000


class Arrivals:
    """Counts of one run. refused: what was no frame of the run; duplicates: what came again."""

    def __init__(self) -> None:
        self.refused = 0
        self.duplicates = 0
        self._marks: dict[int, bytearray] = {}
        self._last: dict[int, int] = {}
        self._came: Counter[int] = Counter()
        self._sent: dict[int, int] = {}
        self._transit: Counter[int] = Counter()

    def add(self, frame: Frame, received_ns: int) -> bool:
        """Count a frame; returns whether its record is to be appended."""
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
        self._transit[max(0, received_ns - frame.sent_ns) // TRANSIT_STEP_NS] += 1
        return True

    def _marks_with(self, stream: int, sequence: int) -> bytearray | None:
        """The marks of a stream, with a place for a sequence; None where that takes too much."""
        marks = self._marks.setdefault(stream, bytearray())
        missing = (sequence >> 3) + 1 - len(marks)
        if missing > 0:
            if missing + sum(map(len, self._marks.values())) > MAX_MARK_BYTES:
                return None
            marks.extend(bytes(missing))
        return marks

    @property
    def received(self) -> int:
        """Frames that came, each once."""
        return self._came.total()

    @property
    def ended(self) -> bool:
        """Whether every stream that sent something has said how many frames it had."""
        return bool(self._sent) and set(self._came) <= set(self._sent)

    @property
    def sent(self) -> int:
        """Frames that were sent, as far as their streams have said so; of others the frames up to
        the last that came."""
        return sum(
            self._sent.get(stream, self._last.get(stream, -1) + 1)
            for stream in {*self._sent, *self._last}
        )

    @property
    def lost(self) -> int:
        """Frames that were sent and did not come."""
        return self.sent - self.received

    @property
    def transit_us(self) -> dict[str, int | None]:
        """How long frames took from the sender to here, by one clock: microseconds."""
        return {name: quantile(self._transit, level) for name, level in LEVELS.items()}
