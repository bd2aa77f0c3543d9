"""The generator's clock against the broker's, from the records that are sent before the load."""

from services.evaluator.columns import Ints
from services.evaluator.decode import Decoded

MOST_AHEAD_MS = 5.0
MOST_BEHIND_MS = 500.0


class Probes:
    """The least difference of appending and sending is the offset of the clocks plus the shortest
    way, which is short: the smaller the difference, the less of it is the way."""

    def __init__(self) -> None:
        self.records = 0
        self.offset_ms = float("inf")

    def add(self, appended_ms: Ints, probes: Decoded) -> None:
        """Take in probe records; appended_ms: of all records of their batch."""
        if not len(probes):
            return
        # An append time is whole milliseconds: on average half of one has been cut off.
        away_us = (appended_ms[probes.places] * 1000 + 500) - probes.ints("scheduled_at")
        self.records += len(probes)
        self.offset_ms = min(self.offset_ms, float(away_us.min()) / 1000)

    def complaint(self) -> str:
        """Why nothing can be measured against these clocks, or nothing."""
        if self.offset_ms < -MOST_AHEAD_MS:
            return (
                f"The generator's clock is at least {-self.offset_ms:.1f} ms ahead of the "
                "broker's, so that latencies since the scheduled time would be too small."
            )
        if self.records and self.offset_ms > MOST_BEHIND_MS:
            return (
                f"No probe record was appended within {self.offset_ms:.0f} ms of its sending: the "
                "generator's clock is behind the broker's, or the way is that long."
            )
        return ""
