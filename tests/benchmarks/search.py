"""How close a search comes to a capacity that is known, and how long it takes.

Searches by `run` on a stack of its own, of the calibration pipeline with a programmed service time:
each has another capacity, from a seed, between 2,000 and 8,000 records/s. The peer is the capacity:
ratios are found rates relative to it, their geometric mean with its interval and the extremes.
Seconds are those of the whole command, with the run at 90 % of the rate, on a stack that is up.

Settings, by environment variable: TIDEGAUGE_BENCH_ROUNDS (searches), TIDEGAUGE_BENCH_SEED.
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks._measured import Measured, averaged, ratio
from tests.benchmarks._steady import Stack, running_stack

ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "20"))
SEED = int(os.environ.get("TIDEGAUGE_BENCH_SEED", "1"))
LEAST, MOST = 2_000, 8_000
NEAR = 0.05
WORKLOAD = """
name = "capacity"
summary = "A search for a known capacity."
stages = ["parse"]
purpose = "throughput"
[load]
shape = "constant"
rate_per_second = 1_000
[phases]
warm_up_s = 3
measure_s = 10
[search]
precision = 0.05
step_warm_up_s = 4
step_s = 12
confirm_s = 24
max_steps = 12
budget_s = 300
steady_latency = { max_cpu_share = 1 }
[validity]
max_send_delay_p99_ms = 500
"""


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Rates found relative to the capacities, and the duration and steps of a search."""
    chance = random.Random(SEED)
    capacities = [round(LEAST * (MOST / LEAST) ** chance.random()) for _ in range(ROUNDS)]
    with running_stack(scratch / "stack") as stack:
        (stack.data / "capacity.toml").write_text(WORKLOAD)
        results = [_search(say, stack, capacity) for capacity in capacities]
    done = [each for each in results if each is not None]
    assert done, "no search gave a rate"
    rates = [rate for rate, _capacity, _seconds, _steps in done]
    known = [capacity for _rate, capacity, _seconds, _steps in done]
    errors = [rate / capacity - 1 for rate, capacity in zip(rates, known, strict=True)]
    seconds = [seconds for _rate, _capacity, seconds, _steps in done]
    figures = {
        "searches_count": ROUNDS,
        "within_5_percent_count": sum(abs(error) <= NEAR for error in errors),
        "lowest_error_percent": 100 * min(errors),
        "highest_error_percent": 100 * max(errors),
        "median_s": median(seconds),
        "longest_s": max(seconds),
        **averaged("steps_count", [steps for *_others, steps in done]),
    }
    return Measured(figures, ratio("found_to_capacity", rates, known))


def _search(
    say: Callable[[str], None], stack: Stack, capacity: int
) -> tuple[float, int, float, int] | None:
    """Rate, capacity, seconds and steps of a search; None if it gave no rate."""
    pipeline, report = stack.data / "limited.toml", stack.data / "capacity.json"
    report.unlink(missing_ok=True)
    pipeline.write_text(
        'name = "limited"\nsummary = "A known capacity."\nengine = "calibration"\n'
        f"delay_ms = 0\ncapacity_per_second = {capacity}\n"
    )
    began_s = time.monotonic()
    done = stack.tidegauge(
        *("run", str(stack.data / "capacity.toml"), "--pipeline", str(pipeline)),
        *("--report", str(report)),
    )
    seconds = time.monotonic() - began_s
    if not report.exists():
        raise RuntimeError(done.stdout + done.stderr)
    result: dict[str, Any] = json.loads(report.read_text())
    search = result["conclusion"].get("search") or {}
    rate, steps = search.get("rate_per_second"), len(search.get("steps", ()))
    verdict = "" if result["valid"] else f", INVALID: {' '.join(result['invalid_reasons'])}"
    if rate is None:
        say(f"capacity {capacity}/s: no rate{verdict}")
        return None
    say(
        f"capacity {capacity}/s: {rate:.0f}/s ({rate / capacity - 1:+.1%}), {steps} steps in "
        f"{seconds:.0f} s{verdict}"
    )
    return rate, capacity, seconds, steps
