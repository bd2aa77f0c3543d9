"""Clock offsets of brokers, from this machine and from each other. Pure."""

from dataclasses import dataclass
from typing import Final

MOST_BEHIND_MS: Final = 5_000
SPAN_MS: Final = 60_000  # a minimum is of a span of this length and of the span before


@dataclass
class _Least:
    """Minimum delay of a span of time, and of the span before it if there is one."""

    since_ms: int
    now_ms: int
    before_ms: int | None = None

    @property
    def ms(self) -> int:
        """The minimum of both."""
        return self.now_ms if self.before_ms is None else min(self.now_ms, self.before_ms)


class BrokerClocks:
    """Clock offset of each leader from this machine, estimated from records.

    A record is seen after its time, so the minimum delay is the clock offset plus the shortest
    transit time. Only the delay of a fresh record, which is seen shortly after its leader stamped
    it, estimates the offset; the delay of any other record is only an upper bound.
    """

    def __init__(self) -> None:
        self._stamping: set[int] = set()
        self._any: dict[int, _Least] = {}
        self._fresh: dict[int, _Least] = {}

    def saw(self, leader: int, time_ms: int, now: int, is_stamp: bool, is_fresh: bool) -> None:
        """Note when a record of a leader was seen here. is_stamp: whether the leader set its
        time."""
        if is_stamp:
            self._stamping.add(leader)
        _note(self._any, leader, now - time_ms, now)
        if is_stamp and is_fresh:
            _note(self._fresh, leader, now - time_ms, now)

    def behind_ms(self) -> int:
        """How far the slowest clock may be behind this machine's, at most MOST_BEHIND_MS; 0 if
        ahead."""
        return min(
            MOST_BEHIND_MS, max([0, *(one.ms for one in (self._any | self._fresh).values())])
        )

    def difference_ms(self) -> int | None:
        """Maximum clock difference between brokers; None with fewer than two estimates."""
        found = [one.ms for one in self._fresh.values()]
        return max(found) - min(found) if len(found) > 1 else None

    def leaders(self) -> list[int]:
        """Brokers whose timestamps were seen."""
        return sorted(self._stamping)


def _note(delays: dict[int, _Least], leader: int, took_ms: int, now: int) -> None:
    least = delays.get(leader)
    if least is None:
        delays[leader] = _Least(now, took_ms)
    elif now - least.since_ms >= SPAN_MS:
        delays[leader] = _Least(now, took_ms, least.now_ms)
    else:
        least.now_ms = min(least.now_ms, took_ms)
