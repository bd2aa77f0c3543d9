"""How often two pipelines measured alternately are reported to differ: the same one twice, and the
calibration pipeline compared with itself with a longer delay.

Each run is one of `run --pipeline A,B --interleave`. A difference is found if the report calls one
real, in any stage.

Settings, by environment variable: TIDEGAUGE_BENCH_RUNS (10 of each kind), TIDEGAUGE_BENCH_PIPELINES
(calibration,kafka-streams: pipelines compared with themselves), TIDEGAUGE_BENCH_STAGES (1-3),
TIDEGAUGE_BENCH_WARM_UP (30 s), TIDEGAUGE_BENCH_SECONDS (180, measured), TIDEGAUGE_BENCH_BLOCKS (a
file for the blocks of every run so far, for the replays of tests/unit/analysis).
"""

import json
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.definitions.pipelines import PIPELINES_DIR
from services.runtime.clickhouse import StoreUrl
from services.runtime.ports import PORT_OFFSETS
from tests.benchmarks._blocks import recorded_blocks
from tests.benchmarks._measured import Measured
from tests.benchmarks._steady import Stack, running_stack

RATE_PER_SECOND = 400
DELAY_MS = 50
LONGER_MS = {"10_percent": 55, "2_ms": 52}


@dataclass(frozen=True)
class Kind:
    """A pair of pipelines. files: their TOML files."""

    name: str
    files: tuple[Path, Path]


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Measure what the environment requests."""
    runs = int(os.environ.get("TIDEGAUGE_BENCH_RUNS", "10"))
    kept: list[dict[str, Any]] = []
    found, done = Counter[str](), Counter[str]()
    with running_stack(scratch / "stack") as stack:
        for number in range(runs):
            for kind in kinds(scratch):
                report = run(stack, kind)
                said = report["interleaved"]["said"]
                say(f"{kind.name}, run {number + 1} of {runs}: {said}")
                if not report["valid"]:
                    continue
                done[kind.name] += 1
                found[kind.name] += any(
                    one["real"]
                    for figures in report["interleaved"]["differences"].values()
                    for one in figures.values()
                )
                url = StoreUrl.of("127.0.0.1", stack.base_port + PORT_OFFSETS["store"], stack.data)
                kept.append({"kind": kind.name} | recorded_blocks(url, report["run_id"]))
                if path := os.environ.get("TIDEGAUGE_BENCH_BLOCKS"):
                    Path(path).write_bytes(lzma.compress(json.dumps(kept).encode()))
    figures = {f"{name}_valid_runs": float(count) for name, count in done.items()}
    return Measured(
        figures | {f"{name}_called_different_runs": float(found[name]) for name in done}
    )


def kinds(scratch: Path) -> Iterator[Kind]:
    """The pairs to compare."""
    names = os.environ.get("TIDEGAUGE_BENCH_PIPELINES", "calibration,kafka-streams").split(",")
    for name in filter(None, names):
        text = (PIPELINES_DIR / f"{name}.toml").read_text()
        files = tuple(written(scratch, text, name, f"{name}-{side}") for side in ("one", "two"))
        yield Kind(f"{name}_same", (files[0], files[1]))
    text = (PIPELINES_DIR / "calibration.toml").read_text()
    for name, delay_ms in LONGER_MS.items():
        longer = text.replace(f"delay_ms = {DELAY_MS}", f"delay_ms = {delay_ms}")
        first = written(scratch, text, "calibration", "calibration-one")
        second = written(scratch, longer, "calibration", f"calibration-{name.replace('_', '-')}")
        yield Kind(f"slower_by_{name}", (first, second))


def written(scratch: Path, text: str, name: str, other: str) -> Path:
    """A file with the pipeline under another name."""
    path = scratch / f"{other}.toml"
    path.write_text(text.replace(f'name = "{name}"', f'name = "{other}"', 1))
    return path


def run(stack: Stack, kind: Kind) -> dict[str, Any]:
    """The report of one interleaved run. Raises RuntimeError if there is none."""
    path = stack.data / "interleaved.json"
    path.unlink(missing_ok=True)
    done = stack.tidegauge(
        *("run", "latency", "--interleave", "--pipeline", ",".join(map(str, kind.files))),
        *("--stages", os.environ.get("TIDEGAUGE_BENCH_STAGES", "1-3")),
        *("--rate", str(RATE_PER_SECOND), "--report", str(path)),
        *("--warm-up", os.environ.get("TIDEGAUGE_BENCH_WARM_UP", "30")),
        *("--duration", os.environ.get("TIDEGAUGE_BENCH_SECONDS", "180")),
    )
    if not path.exists():
        raise RuntimeError(done.stdout + done.stderr)
    report: dict[str, Any] = json.loads(path.read_text())
    return report
