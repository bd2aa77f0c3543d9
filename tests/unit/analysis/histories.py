"""Histories of runs with realistic noise, generated from fixed seeds."""

from typing import Any

import numpy as np

from analysis.changes.series import Point, Series
from tests.unit.requests import a_request


def noisy(seed: int, runs: int, median_ms: float, kind: str = "quiet") -> list[float]:
    """Whole milliseconds. quiet: 8 % variation between runs; restless: 15 %, and one run in ten
    takes two to ten times as long, as on a machine with other work; tiny: between 1 and 3 ms."""
    random = np.random.default_rng(seed)
    if kind == "tiny":
        return [float(value) for value in random.choice([1, 2, 3], runs, p=[0.2, 0.6, 0.2])]
    values = median_ms * np.exp(random.normal(0, 0.08 if kind == "quiet" else 0.15, runs))
    if kind == "restless":
        values = np.where(random.random(runs) < 0.1, values * random.uniform(2, 10, runs), values)
    return [float(round(value)) for value in values]


def a_point(number: int, value: float, others: float | None = None, **environment: Any) -> Point:
    """One run of `latency` on spark-realtime."""
    request = a_request().model_dump(mode="json") | {"environment": environment}
    return Point(f"run-{number:02}", value, request, others)


def a_series(values: list[float], stage: str = "join") -> Series:
    """A series of such runs."""
    points = tuple(a_point(number, value) for number, value in enumerate(values))
    return Series("latency at 400/s", "spark-realtime", stage, "p99_ms", points)
