"""Progress of the inputs: offsets, lag, and the time up to which all records have arrived."""

READ_MS = 40  # from append to arrival, without lag
UNKNOWN = -1


class Reading:
    """Read and end offsets of the input partitions."""

    def __init__(self, start_offsets: dict[str, list[int]]) -> None:
        starts = {
            (topic, number): offset
            for topic, offsets in start_offsets.items()
            for number, offset in enumerate(offsets)
        }
        self.next_offsets = dict(starts)
        self.ends = dict.fromkeys(starts, UNKNOWN)
        self._appended_ms = dict.fromkeys(starts, 0)
        self.count = 0

    def begin(self, topic: str, partition: int, offset: int) -> None:
        """Set the start offset of a partition, if not that of the run."""
        self.next_offsets[topic, partition] = offset

    def read(
        self, topic: str, partition: int, offset: int, appended_ms: int, count: int = 1
    ) -> None:
        """Note a record, or the last of several, as read."""
        place = topic, partition
        self.next_offsets[place] = offset + 1
        self._appended_ms[place] = appended_ms
        self.count += count

    def end(self, topic: str, partition: int, offset: int) -> None:
        """Set the end offset of a partition, as last reported by the broker; negative if it has not
        been reported."""
        if offset >= 0:
            self.ends[topic, partition] = offset

    @property
    def lag(self) -> int:
        """Number of unread records."""
        return sum(max(0, end - self.next_offsets[place]) for place, end in self.ends.items())

    def reached_ms(self, now_ms: float) -> float:
        """All records appended until this time have been read; 0 before all ends are known."""
        if UNKNOWN in self.ends.values():
            return 0
        behind = [
            self._appended_ms[place]
            for place, end in self.ends.items()
            if self.next_offsets[place] < end
        ]
        return min([now_ms - READ_MS, *behind])
