"""The result of a benchmark, and how its ratios are computed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

from analysis.intervals import student_t


@dataclass(frozen=True)
class Measured:
    """figures: values by name, the unit last. ratios: ours relative to a peer's in the same run,
    above 1 if ours is better. NAME_low and NAME_high are the bounds of NAME."""

    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)


def margin(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean (Student's t); infinite for one value."""
    if len(values) < 2:
        return math.inf
    return student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def averaged(name: str, values: Sequence[float]) -> dict[str, float]:
    """The mean of several rounds with its interval; a single value has none."""
    middle = mean(values)
    if len(values) < 2:
        return {name: middle}
    half = margin(values)
    return {name: middle, f"{name}_low": middle - half, f"{name}_high": middle + half}


def ratio(name: str, above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The ratio of values measured alternately, one of each per round: the geometric mean with its
    interval, on the log scale."""
    logs = [math.log(one / other) for one, other in zip(above, below, strict=True)]
    return {key: math.exp(value) for key, value in averaged(name, logs).items()}


def quotient(name: str, figures: Mapping[str, float], above: str, below: str) -> dict[str, float]:
    """The ratio of two nonzero figures. Its bounds are the extremes that the bounds of the figures
    allow; none if a figure has none, or may be 0."""
    found = {name: figures[above] / figures[below]}
    ends = [figures.get(f"{one}_{end}", 0) for one in (above, below) for end in ("low", "high")]
    if min(ends) > 0:
        found |= {f"{name}_low": ends[0] / ends[3], f"{name}_high": ends[1] / ends[2]}
    return found
