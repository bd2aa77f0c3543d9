"""A search for the sustainable throughput: its steps, its end, and the policy that judges steps.

Sustainable throughput is the highest load that a system handles without a continuously increasing
latency or queue (Karimov et al. 2018, definition 5). Policies:

steady-latency (OSPBench: van Dongen and Van den Poel 2020, §3.4.2): the median latency does not
rise and stays below 10 s, everything is processed within 10 s of the end, and the mean CPU stays
below 80 %.

The others (preprint of Karimov et al. 2018, §5.1.1) use the queue of records that are pushed and
not yet processed. Up to q^a it is acceptable, above q^b the rate is not sustained; in between it is
tolerated: for some time (queue-by-time), for some records pushed (queue-by-count), or until
(q^b - q^a) / 2 more are pushed, when it must be acceptable again (queue-combined).

own: a function in a Python file of the user's (`policy_file`), which judges what was observed of a
step (`schemas/observation.py`). A failed send and a missing output fail under every policy.

A series of searches with increasing numbers of workers shows how a pipeline's sustainable rate
scales. The engine defines what a worker is (`scales_by` in its engine.toml): a thread, a subtask, a
process.
"""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.model import Model, Name

PolicyName = Literal["steady-latency", "queue-by-time", "queue-by-count", "queue-combined", "own"]
AUTO, AUTO_WARM_UP_S, LEAST_STEADY_S = "auto", 60, 10
MOST_WORKERS, MOST_COUNTS, MOST_PARTITIONS = 1_024, 16, 1_024
Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)]


class SteadyLatency(Model):
    """Bounds of the policy steady-latency.

    max_rise: how fast the median may rise, seconds per second: smaller rises are indistinguishable
    from noise in a short step. max_cpu_share: of the cores available to the pipeline, which are
    those that the rest of the machine does not use; 1: no limit.
    """

    max_median_ms: int = Field(10_000, ge=1)
    max_rise: float = Field(0.03, gt=0, lt=1)
    max_drain_s: float = Field(10, gt=0)
    max_cpu_share: float = Field(0.8, gt=0, le=1)


class QueueThresholds(Model):
    """Queue thresholds as shares of the input of a step; the defaults are the paper's initial
    values.

    acceptable: q^a; unacceptable: q^b; full: q^n, where the paper's driver can push no more.
    tolerated_s, tolerated: how long, or for how many pushes (as a share of the input), the queue
    may stay above q^a continuously.
    """

    acceptable: float = Field(0.05, gt=0, lt=1)
    unacceptable: float = Field(0.15, gt=0, lt=1)
    full: float = Field(0.30, gt=0, lt=1)
    tolerated_s: float = Field(3, ge=0)
    tolerated: float = Field(0.05, ge=0, lt=1)

    @model_validator(mode="after")
    def _in_order(self) -> "QueueThresholds":
        if not self.acceptable < self.unacceptable <= self.full:
            raise ValueError("acceptable < unacceptable <= full is required")
        return self


class PolicyFile(Model):
    """A Python file with a policy of one's own. A workload's file gives its path alone, relative to
    itself; sha256: of its content when the workload was read."""

    path: str = Field(min_length=1, max_length=4096)
    sha256: str = Field("", max_length=64)

    @model_validator(mode="before")
    @classmethod
    def _by_path(cls, fields: Any) -> Any:
        return {"path": fields} if isinstance(fields, str) else fields

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return PurePath(self.path).name


class Search(Model):
    """How the sustainable rate is searched; the load's `rate_per_second` is the first guess.

    factor: between rates while one bound is unknown. precision: the search ends when the lowest
    rate not sustained is at most this share above the highest sustained one. step_s: measured after
    step_warm_up_s; confirm_s: the same for the last step, which repeats the highest sustained rate
    for longer to expose slow leaks, and for one that repeats a step hidden by noise.
    until_steady: warm-ups end early, once every stage is steady; `step_warm_up_s = "auto"` is this
    with AUTO_WARM_UP_S. Pipelines that are not warm from the step before may take twice as long.
    max_steps and budget_s limit the whole search; verify_share: the share of the rate found at
    which the run itself then takes place.
    """

    policy: PolicyName = "steady-latency"
    policy_file: PolicyFile | None = None
    steady_latency: SteadyLatency = SteadyLatency()
    queue: QueueThresholds = QueueThresholds()
    factor: float = Field(2.0, gt=1, le=100)
    precision: float = Field(0.1, gt=0, le=1)
    step_warm_up_s: int = Field(AUTO_WARM_UP_S, ge=0, le=3_600)
    until_steady: bool = False
    step_s: int = Field(15, ge=3, le=86_400)
    confirm_s: int = Field(60, ge=3, le=86_400)
    min_rate_per_second: float = Field(10, gt=0)
    max_rate_per_second: float = Field(1_000_000, gt=0)
    max_steps: int = Field(20, ge=1, le=1_000)
    budget_s: float = Field(1_800, gt=0)
    verify_share: float = Field(0.9, gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _auto(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("step_warm_up_s", AUTO) == AUTO:
            return fields | {"step_warm_up_s": AUTO_WARM_UP_S, "until_steady": True}
        return fields

    @model_validator(mode="before")
    @classmethod
    def _own_by_its_file(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("policy_file"):
            return {"policy": "own"} | fields
        return fields

    @property
    def judged_by(self) -> str:
        """The policy's name, of one's own that of its file."""
        return self.policy_file.name if self.policy_file else self.policy

    @model_validator(mode="after")
    def _own_has_a_file(self) -> "Search":
        if (self.policy == "own") != (self.policy_file is not None):
            raise ValueError("policy = 'own' and policy_file must be given together")
        return self

    @model_validator(mode="after")
    def _long_enough(self) -> "Search":
        if self.until_steady and self.step_warm_up_s < LEAST_STEADY_S:
            raise ValueError(f"until_steady needs a step_warm_up_s of at least {LEAST_STEADY_S}")
        return self

    @model_validator(mode="after")
    def _bounds_in_order(self) -> "Search":
        if self.min_rate_per_second >= self.max_rate_per_second:
            raise ValueError("min_rate_per_second must be below max_rate_per_second")
        return self


class Scaling(Model):
    """workers: numbers of workers, with a search for each. partitions_per_worker: partitions of
    each topic of such a run for each worker; a workload with `partitions` uses the same number for
    all."""

    workers: tuple[Workers, ...] = Field((1, 2, 4), min_length=1, max_length=MOST_COUNTS)
    partitions_per_worker: int = Field(1, ge=1, le=64)

    @model_validator(mode="after")
    def _rise(self) -> "Scaling":
        if list(self.workers) != sorted(set(self.workers)):
            raise ValueError("numbers of workers must be ascending")
        if self.workers[-1] * self.partitions_per_worker > MOST_PARTITIONS:
            raise ValueError(f"a topic has at most {MOST_PARTITIONS} partitions")
        return self


class Scaled(Model):
    """A run's part of a series. series: the id of its first run; pipeline: its name without the
    number of workers."""

    series: str = Field(max_length=100)
    pipeline: Name
    workers: Workers
    partitions: int = Field(ge=1, le=MOST_PARTITIONS)
