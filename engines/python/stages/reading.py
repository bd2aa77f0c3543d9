"""How far the inputs are read: offsets, lag, and the time up to which all records are there."""

READ_MS = 40  # from an append to the record's arrival here, where nothing is behind


class Reading:
    """Partitions of the inputs by what was read of them and where they end."""

    def __init__(self, start_offsets: dict[str, list[int]]) -> None:
        starts = {
            (topic, number): offset
            for topic, offsets in start_offsets.items()
            for number, offset in enumerate(offsets)
        }
        self.next_offsets = dict(starts)
        self.ends = dict(starts)
        self._appended_ms = dict.fromkeys(starts, 0)
        self.count = 0

    def begin(self, topic: str, partition: int, offset: int) -> None:
        """Where a partition is read from, if not from where the run began."""
        self.next_offsets[topic, partition] = offset

    def read(
        self, topic: str, partition: int, offset: int, appended_ms: int, count: int = 1
    ) -> None:
        """A record, or the last of several."""
        place = topic, partition
        self.next_offsets[place] = offset + 1
        self._appended_ms[place] = appended_ms
        self.count += count

    def end(self, topic: str, partition: int, offset: int) -> None:
        """Where a partition ends, as the broker said last."""
        self.ends[topic, partition] = offset

    @property
    def lag(self) -> int:
        """Records that are not read yet."""
        return sum(max(0, end - self.next_offsets[place]) for place, end in self.ends.items())

    def reached_ms(self, now_ms: float) -> float:
        """All records that were appended up to then are read."""
        behind = [
            self._appended_ms[place]
            for place, end in self.ends.items()
            if self.next_offsets[place] < end
        ]
        return min([now_ms - READ_MS, *behind])
