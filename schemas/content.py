"""The content of a workload: the data of its records, their format, and deliberate faults, derived
from the seed: which records of a run are affected, and how.

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

Which records of a run have a fault, and their delays (schemas/content.py). Separate because it
imports numpy, which takes longer than all other imports of a service without records.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from schemas.model import Model

OWN_SOURCE = "domain"
TimeUnit = Literal["s", "ms", "us", "ns"]
NONE, LATE, DUPLICATE, UNDECODABLE, IMPOSSIBLE = range(5)
KINDS = ("none", "late", "duplicate", "undecodable", "impossible")


class Content(Model):
    """The data of the records. Further options belong to the domain, which validates them
    (`services.definitions.domains.content_of`).

    source: `domain`, the domain's own data; `file`, the recording at `path`, a file or a folder
    (services/definitions/recordings.py); or another name that the domain defines. columns: the
    file's column for each field with another name there. time_unit: of times in the file that are
    numbers since 1970; empty: milliseconds, from 1973 on, but seconds in an answer of OpenSky.
    second_ms: duration of a second of event time (temporal scaling: below 1000, event time runs
    faster than the clock). copies: spatial scaling of a replay: number of copies of each recorded
    key. format: `avro` (single-object encoding) or `json` (UTF-8, no marker:
    schemas/codec.py).
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]

    source: str = Field(OWN_SOURCE, pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    path: str = ""
    columns: dict[str, str] = Field(default_factory=dict)
    format: Literal["avro", "json"] = "avro"
    second_ms: int = Field(1000, ge=10, le=3_600_000)
    time_unit: TimeUnit | Literal[""] = ""
    copies: int = Field(1, ge=1, le=100_000)

    @model_validator(mode="after")
    def _names_its_file(self) -> "Content":
        if (self.source == "file") != bool(self.path):
            raise ValueError("path and source = 'file' must be given together")
        return self


class DrawnContent(Content):
    """Data that a domain draws from the seed of a run, or a file's."""

    source: Literal["domain", "file"] = "domain"

    @model_validator(mode="after")
    def _columns_are_of_a_file(self) -> "DrawnContent":
        for name in ("columns", "time_unit"):
            if getattr(self, name) and self.source != "file":
                raise ValueError(f"{name} applies only to a file")
        return self


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
