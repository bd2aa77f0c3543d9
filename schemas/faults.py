"""Deliberate faults, derived from the seed: which records of a run are affected, and how.

The rule is a pure function of (faults, seed, sequence), shared by generator and evaluator, so
faults are not announced per record: the request of a run contains `workload.faults` and `seed`, and
`LoadFinished.faults` counts what was sent.

Effect of each kind on a record; at most one kind per record:
- LATE: it is sent `delays_us` later than the load shape schedules it. `scheduled_at` is the later
  time (so that the delay counts as nobody's latency), its event time stays: the record is late and
  out of order. A delay that would exceed the load's end is cut off there.
- DUPLICATE: it is sent twice, the same bytes in the same topic and partition, one after the other.
- UNDECODABLE: its value is cut to half its length, so it decodes in no format. The key stays. A
  reader learns neither its sequence nor its run; it must become a dead letter and nothing else.
- IMPOSSIBLE: one column has an impossible value (`impossible` of the input in the domain). It
  decodes; it is data.
"""

from pydantic import Field, model_validator

from schemas.model import Model

NONE, LATE, DUPLICATE, UNDECODABLE, IMPOSSIBLE = range(5)
KINDS = ("none", "late", "duplicate", "undecodable", "impossible")


class Faults(Model):
    """Share of the records with each fault, 0 to 1, together at most 1.

    late_distribution: delays are `late_ms` (fixed), uniform from 0 to `late_ms` (uniform), or
    exponential with that mean, at most ten times it.
    """

    late: float = Field(0, ge=0, le=1)
    late_ms: int = Field(2_000, ge=1, le=600_000)
    late_distribution: str = Field("exponential", pattern="^(fixed|uniform|exponential)$")
    duplicate: float = Field(0, ge=0, le=1)
    undecodable: float = Field(0, ge=0, le=1)
    impossible: float = Field(0, ge=0, le=1)

    @model_validator(mode="after")
    def _shares(self) -> "Faults":
        if sum(self.shares) > 1 + 1e-9:
            raise ValueError("the sum of the shares of all faults must not exceed 1")
        return self

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Shares in the order of the kinds LATE to IMPOSSIBLE."""
        return (self.late, self.duplicate, self.undecodable, self.impossible)

    @property
    def any(self) -> bool:
        """Whether there are any faults."""
        return sum(self.shares) > 0
