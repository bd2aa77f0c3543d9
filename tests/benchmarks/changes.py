"""How often a slowdown of a tenth is found in a history of this machine, and how often a change
where there is none.

A suite of one step, `latency` on spark-realtime after a warm-up until steady, runs one after the
other without pauses. The valid and steady runs are the history. Replays of it with 40 runs before
and after, half of them with a planted slowdown, are searched for change points; see
tests/unit/analysis/recorded_history.py.

Settings, by environment variable: TIDEGAUGE_BENCH_RUNS (40), TIDEGAUGE_BENCH_HISTORY (a file for
the figures of every run, for tests/unit/analysis; for other figures, it also has the number of
outputs by latency of every stage, and the CPU time of the generator per record, microseconds).
"""

import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.changes.series import TYPICAL, Series
from services.readmodel.history import read_series
from services.runtime.clickhouse import StoreUrl, query
from services.runtime.ports import PORT_OFFSETS
from tests.benchmarks._measured import Measured
from tests.benchmarks._steady import Stack, running_stack
from tests.unit.analysis.recorded_history import alarms, detections

RUNS = int(os.environ.get("TIDEGAUGE_BENCH_RUNS", "40"))
REPLAYS, EACH_SIDE = 100, 40
RUN_S = 240  # the longest that a run may take on average
PIPELINE = "spark-realtime"
COUNTS = (
    "SELECT stage, latency_ms, sum(m.count) AS outputs FROM tidegauge.latency_minutes AS m"
    " WHERE run_id = {run_id:String} AND phase = 'measure' AND definition = 'latest'"
    " GROUP BY stage, latency_ms"
)
SUITE = f"""
name = "history"
summary = "The same run again and again."

[pace]
max_cpu_share = 1
pause_s = 0
busy_share = 1

[[steps]]
workload = "latency"
pipelines = ["{PIPELINE}"]
warm_up_s = "auto"
"""


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Record a history and replay it."""
    suite = scratch / "history.suite.toml"
    suite.write_text(SUITE)
    with running_stack(scratch / "stack", str(suite)) as stack:
        recorded = recorded_history(stack, say)
    if path := os.environ.get("TIDEGAUGE_BENCH_HISTORY"):
        Path(path).write_bytes(lzma.compress(json.dumps(recorded).encode()))
    return Measured(
        {
            "history_runs": float(len(recorded)),
            "slowdowns_found_of_100": float(detections(recorded, REPLAYS, EACH_SIDE)),
            "false_alarms_of_100": float(alarms(recorded, REPLAYS, EACH_SIDE)),
        }
    )


def recorded_history(stack: Stack, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Wait for RUNS valid and steady runs, and return them, oldest first: `run_id`, `figures` of
    the history, `generator_us`, `counts` of outputs by stage and latency. Raises QueryError,
    TimeoutError."""
    url = StoreUrl.of("127.0.0.1", stack.base_port + PORT_OFFSETS["store"], stack.data)
    end_s, told = time.monotonic() + RUN_S * RUNS, 0
    while True:
        found = runs_of(read_series(url))
        if len(found) > told:
            told = len(found)
            say(f"{told} of {RUNS} runs: {shown(found[-1]['figures'])}")
        if told >= RUNS or (found and time.monotonic() > end_s):
            return [run | {"counts": counts_of(url, run["run_id"])} for run in found]
        if time.monotonic() > end_s:
            raise TimeoutError(f"no run was valid and steady in {RUN_S * RUNS} s")
        time.sleep(5)  # interval between queries


def runs_of(series: list[Series]) -> list[dict[str, Any]]:
    """The figures of each run by stage and metric, oldest run first."""
    found: dict[str, dict[str, Any]] = {}
    for one in series:
        for point in one.points:
            told: dict[str, Any] = {
                "run_id": point.run_id,
                "generator_us": point.generator_us,
                "figures": {},
            }
            run = found.setdefault(point.run_id, told)
            run["figures"][f"{one.stage}.{one.metric}"] = point.value
    return [found[run_id] for run_id in sorted(found)]


def counts_of(url: str, run_id: str) -> dict[str, dict[int, int]]:
    """Outputs of a run by stage and latency in milliseconds. Raises QueryError."""
    found: dict[str, dict[int, int]] = {}
    for row in query(url, COUNTS, run_id=run_id):
        found.setdefault(row["stage"], {})[int(row["latency_ms"])] = int(row["outputs"])
    return found


def shown(figures: dict[str, Any]) -> str:
    """The typical latency of each stage."""
    found = {name: value for name, value in figures.items() if name.endswith(f".{TYPICAL}")}
    return ", ".join(f"{name.split('.')[0]} {value:.2f} ms" for name, value in found.items())
