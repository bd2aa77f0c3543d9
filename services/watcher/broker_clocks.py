"""How far the clocks of brokers are behind this machine's and apart. Pure."""

from typing import Final

MOST_BEHIND_MS: Final = 5_000


class BrokerClocks:
    """How far each leader's clock is behind this machine's, from the records themselves.

    A record is seen after it was stamped, so the least time between the two is that of the clocks
    and of the shortest way. Two brokers whose least times differ have clocks that differ.
    """

    def __init__(self) -> None:
        self._least_ms: dict[int, int] = {}

    def saw(self, leader: int, time_ms: int, now: int) -> None:
        """Note when a record was stamped by a leader and seen here."""
        took_ms = now - time_ms
        self._least_ms[leader] = min(self._least_ms.get(leader, took_ms), took_ms)

    def behind_ms(self) -> int:
        """How far the slowest of the clocks may be behind this machine's; 0 if ahead. What is read
        long after it was stamped says nothing of clocks."""
        return min(MOST_BEHIND_MS, max([0, *self._least_ms.values()]))

    def difference_ms(self) -> int | None:
        """How far the clocks of brokers are apart at most; None where there are not two."""
        found = self._least_ms.values()
        return max(found) - min(found) if len(found) > 1 else None

    def leaders(self) -> list[int]:
        """Brokers whose stamps were seen."""
        return sorted(self._least_ms)
