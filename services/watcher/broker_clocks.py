"""Clock offsets of brokers, from this machine and from each other. Pure."""

from typing import Final

MOST_BEHIND_MS: Final = 5_000


class BrokerClocks:
    """Clock offset of each leader from this machine, estimated from records.

    A record is seen after it was stamped, so the minimum delay is the clock offset plus the
    shortest transit time. If the minimum delays of two brokers differ, their clocks differ.
    """

    def __init__(self) -> None:
        self._least_ms: dict[int, int] = {}

    def saw(self, leader: int, time_ms: int, now: int) -> None:
        """Note when a record was stamped by a leader and seen here."""
        took_ms = now - time_ms
        self._least_ms[leader] = min(self._least_ms.get(leader, took_ms), took_ms)

    def behind_ms(self) -> int:
        """How far the slowest clock may be behind this machine's; 0 if ahead. Records read long
        after they were stamped are ignored."""
        return min(MOST_BEHIND_MS, max([0, *self._least_ms.values()]))

    def difference_ms(self) -> int | None:
        """Maximum clock difference between brokers; None with fewer than two."""
        found = self._least_ms.values()
        return max(found) - min(found) if len(found) > 1 else None

    def leaders(self) -> list[int]:
        """Brokers whose timestamps were seen."""
        return sorted(self._least_ms)
