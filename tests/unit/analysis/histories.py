"""Histories of runs: generated with realistic noise from fixed seeds, and recorded on a machine.

    ./tidegauge up tests/unit/analysis/history.suite.toml --detach      # an hour or more
    python -m tests.unit.analysis.histories http://127.0.0.1:17072 DATA_FOLDER

writes `data/history.json.xz`: the figures of the steady valid runs by stage, oldest run first.
"""

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np

from analysis.changes.series import Point, Series, read_series
from services.runtime.clickhouse import StoreUrl
from tests.unit.requests import a_request

RECORDED = Path(__file__).with_name("data") / "history.json.xz"
BLOCK_RUNS = 5  # consecutive runs that a replay keeps together, with what they have in common


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
    return Series("latency at 400/s", "spark-realtime", stage, "p50_ms", points)


def recorded() -> list[Series]:
    """The series of a recorded history, all with the same runs."""
    found = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return [
        Series(one["workload"], one["pipeline"], one["stage"], one["metric"], _points(one))
        for one in found
    ]


def _points(said: dict[str, Any]) -> tuple[Point, ...]:
    return tuple(a_point(number, value) for number, value in enumerate(said["values"]))


def replayed(history: list[Series], runs: int, random: np.random.Generator) -> list[Series]:
    """The same series with `runs` runs, drawn in blocks of consecutive runs."""
    total = len(history[0].points)
    begins = random.integers(0, total, -(-runs // BLOCK_RUNS))
    places = [(begin + n) % total for begin in begins for n in range(BLOCK_RUNS)][:runs]
    return [
        Series(
            one.workload,
            one.pipeline,
            one.stage,
            one.metric,
            tuple(a_point(n, one.points[place].value) for n, place in enumerate(places)),
        )
        for one in history
    ]


def main() -> None:
    """Write the history of a running stack."""
    url, data = StoreUrl.at(sys.argv[1], Path(sys.argv[2])), RECORDED
    series = read_series(url)
    told = [
        {
            "workload": one.workload,
            "pipeline": one.pipeline,
            "stage": one.stage,
            "metric": one.metric,
            "values": [round(point.value, 3) for point in one.points],
        }
        for one in series
    ]
    data.write_bytes(lzma.compress(json.dumps(told).encode(), preset=9))
    print(f"{len(told)} series of {max(len(one['values']) for one in told)} runs")


if __name__ == "__main__":
    main()
