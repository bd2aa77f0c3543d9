"""A series of searches with increasing numbers of workers: how a pipeline's sustainable rate
scales.

The engine defines what a worker is (`scales_by` in its engine.toml): a thread, a subtask, a
process.
"""

from typing import Annotated

from pydantic import Field, model_validator

from schemas.model import Model, Name

MOST_WORKERS, MOST_COUNTS, MOST_PARTITIONS = 1_024, 16, 1_024
Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)]


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
