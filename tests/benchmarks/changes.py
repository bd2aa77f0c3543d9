"""How often a slowdown of a tenth is found in a history of this machine, and how often a change
where there is none.

A suite of one step, `latency` on spark-realtime after a warm-up until steady, runs one after the
other without pauses. The valid and steady runs are the history. Replays of it, half of them with a
planted slowdown, are searched for change points; see tests/unit/analysis/recorded_history.py.

Settings, by environment variable: TIDEGAUGE_BENCH_RUNS (40), TIDEGAUGE_BENCH_HISTORY (a file for
the figures of every run, for tests/unit/analysis).
"""

import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.changes.series import Series, read_series
from services.runtime.clickhouse import StoreUrl
from services.runtime.ports import PORT_OFFSETS
from tests.benchmarks._measured import Measured
from tests.benchmarks._steady import Stack, running_stack
from tests.unit.analysis.recorded_history import History, alarms, detections

RUNS = int(os.environ.get("TIDEGAUGE_BENCH_RUNS", "40"))
REPLAYS = 100
RUN_S = 240  # the longest that a run may take on average
PIPELINE = "spark-realtime"
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
        history = recorded_history(stack, say)
    if path := os.environ.get("TIDEGAUGE_BENCH_HISTORY"):
        Path(path).write_bytes(lzma.compress(json.dumps(history).encode()))
    return Measured(
        {
            "history_runs": float(len(history)),
            "slowdowns_found_of_100": float(detections(history, REPLAYS)),
            "false_alarms_of_100": float(alarms(history, REPLAYS)),
        }
    )


def recorded_history(stack: Stack, say: Callable[[str], None]) -> History:
    """Wait for RUNS valid runs, and return the steady ones. Raises QueryError, TimeoutError."""
    url = StoreUrl.of("127.0.0.1", stack.base_port + PORT_OFFSETS["store"], stack.data)
    end_s, told = time.monotonic() + RUN_S * RUNS, 0
    while True:
        history = history_of(read_series(url))
        if len(history) > told:
            told = len(history)
            say(f"{told} of {RUNS} runs: {shown(history[-1])}")
        if told >= RUNS:
            return history
        if time.monotonic() > end_s:
            raise TimeoutError(f"{told} of {RUNS} runs were valid and steady in {RUN_S * RUNS} s")
        time.sleep(5)  # interval between queries


def history_of(series: list[Series]) -> History:
    """The figures of each run by stage and metric, oldest run first."""
    found: dict[str, dict[str, float]] = {}
    for one in series:
        for point in one.points:
            figures = found.setdefault(point.run_id, {})
            figures[f"{one.stage}.{one.metric}"] = point.value
    return [found[run_id] for run_id in sorted(found)]


def shown(figures: dict[str, Any]) -> str:
    """The mean latency of each stage."""
    means = {name: value for name, value in figures.items() if name.endswith(".mean_ms")}
    return ", ".join(f"{name.split('.')[0]} {value:.2f} ms" for name, value in means.items())
