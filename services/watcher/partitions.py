"""How far a partition is read. Pure."""

from dataclasses import dataclass

from services.watcher.records import NONE_MS
from services.watcher.troubles import Trouble


@dataclass
class Partition:
    """One partition being read.

    next: the next offset, in the topic with topic_id. read_ms: everything earlier has been read.
    newest_ms: time of the newest record, also if its producer's clock is ahead. end, end_ms: the
    high watermark at an earlier time. is_held: whether it is paused. is_stuck: whether its next
    offset does not exist. lost: a problem that concerns records before the next one.
    """

    next: int
    topic_id: str = ""
    read_ms: int = -1
    newest_ms: int = -1
    end: int = 0
    end_ms: int = -1
    leader: int = -1
    is_held: bool = False
    is_stuck: bool = False
    lost: Trouble | None = None

    @property
    def latest_ms(self) -> int:
        """The latest time that was reached."""
        return max(self.read_ms, self.newest_ms)

    def read_until(self, offset: int, time_ms: int, newest_ms: int) -> None:
        """Note the last processed record, the time up to which these records say that everything
        has been read, and their newest time; NONE_MS if none of their times is valid."""
        self.next = max(self.next, offset + 1)  # the notice of the end may come first
        if time_ms != NONE_MS:
            self.read_ms = time_ms
        if newest_ms == NONE_MS:
            return
        self.newest_ms = newest_ms
        if self.lost is not None:
            self.lost.until_ms = min(self.lost.until_ms, newest_ms)
            self.lost = None

    def reached(self, end: int, end_ms: int) -> int:
        """The time up to which it is read, given its high watermark at a time."""
        if self.is_stuck:
            return self.read_ms
        if self.next >= self.end:
            self.read_ms = max(self.read_ms, self.end_ms)
        self.end, self.end_ms = end, end_ms
        if self.next >= end:
            return end_ms
        return min(self.latest_ms, end_ms) if self.is_held else self.read_ms
