"""Restart policy of a part: number of restarts, and delay before each. Pure.

budget = Budget()
past = ()                            # earlier restarts of this part, seconds
delay_s = budget.delay_s(past, now_s)    # None: used up
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """At most `restarts` of one part within any `window_s` seconds, with doubling delays.

    So a part that dies occasionally is always restarted, and one that cannot run ends the stack
    within about `first_delay_s` times two to the power of `restarts`.
    """

    restarts: int = 5
    window_s: float = 600.0
    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0

    def delay_s(self, past_s: tuple[float, ...], now_s: float) -> float | None:
        """Seconds to wait before the next start; None when the budget is used up."""
        recent = len(self.recent(past_s, now_s))
        if recent >= self.restarts:
            return None
        return float(min(self.longest_delay_s, self.first_delay_s * 2**recent))

    def recent(self, past_s: tuple[float, ...], now_s: float) -> tuple[float, ...]:
        """The past restarts that still count."""
        return tuple(at_s for at_s in past_s if now_s - at_s < self.window_s)
