"""The cost of every pipeline by stage: latency at 400 records/s, and throughput of a backlog.

Latency: runs of the workload `latency` with all stages at once, and for TIDEGAUGE_BENCH_ALONE with
one stage at a time. The peer is the calibration pipeline without delay: a copy that does nothing.
Both use the optimising compiler, which pipelines disable for short warm-ups. Backlog: see
_catch_up.py. The peer is a plain consumer and producer (_copy.py). Ratios compare real-time mode
with micro-batches of the same implementation, and each with the copy.

Settings, by environment variable: TIDEGAUGE_BENCH_PIPELINES and TIDEGAUGE_BENCH_ALONE
(comma-separated names, may be empty), TIDEGAUGE_BENCH_STAGES (like 0-4), TIDEGAUGE_BENCH_SECONDS
(measured, per run; 0: no latency), TIDEGAUGE_BENCH_BACKLOG (records; 0: no backlog).
"""

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemas.model import Stage, parse_stages
from services.console.checks import number
from services.definitions.pipelines import load_pipeline
from tests.benchmarks._catch_up import catch_up, copy
from tests.benchmarks._measured import Measured
from tests.benchmarks._steady import Stack, running_stack
from tests.integration.kafka_broker import lasting, running_broker
from tests.traffic import STAGES

RATE_PER_SECOND = 400
EVERY = (
    "spark-realtime,spark-microbatch,spark-microbatch-builtin,spark-microbatch-state,"
    "spark-continuous"
)
COPY = """
name = "copy"
summary = "A copy without delay."
engine = "calibration"
stages = ["ingest"]
delay_ms = 0
"""
PERCENTILES = ("p50", "p95", "p99")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What to measure."""

    pipelines: tuple[str, ...]
    alone: tuple[str, ...]
    stages: tuple[Stage, ...]
    seconds: int
    backlog: int

    def cells(self, names: tuple[str, ...]) -> Iterator[tuple[str, Stage]]:
        """Pipelines with each requested stage that they support."""
        for name in names:
            has = load_pipeline(name).stages
            yield from ((name, stage) for stage in self.stages if stage in has)


@dataclass
class Found:
    """Figures by pipeline and stage; pipelines alone are named `NAME alone`."""

    cells: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def of(self, pipeline: str, stage: str) -> dict[str, float]:
        """The cell of a pipeline and stage."""
        return self.cells.setdefault((pipeline, stage), {})


def measure(say: Say, scratch: Path) -> Measured:
    """Measure what the environment requests."""
    asked, found = what_is_asked(), Found()
    if asked.seconds:
        with running_stack(scratch / "stack") as stack:
            measure_latency(say, asked, found, stack)
    if asked.backlog:
        measure_backlog(say, asked, found, scratch)
    say(table_of(found))
    return Measured(figures_of(found), ratios_of(found))


def what_is_asked() -> Asked:
    """The settings of the environment."""

    def names(variable: str, otherwise: str) -> tuple[str, ...]:
        return tuple(filter(None, os.environ.get(variable, otherwise).split(",")))

    return Asked(
        names("TIDEGAUGE_BENCH_PIPELINES", EVERY),
        names("TIDEGAUGE_BENCH_ALONE", "spark-realtime"),
        parse_stages(os.environ.get("TIDEGAUGE_BENCH_STAGES", "0-4"), STAGES),
        int(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "30")),
        int(os.environ.get("TIDEGAUGE_BENCH_BACKLOG", "1_000_000")),
    )


def measure_backlog(say: Say, asked: Asked, found: Found, scratch: Path) -> None:
    """Every stage of every pipeline, and the copy."""
    broker = scratch / "broker"
    broker.mkdir()
    with running_broker(broker, options=lasting()) as settings:
        note_backlog(say, found, "copy", "ingest", copy(settings, asked.backlog))
        for name, stage in asked.cells(asked.pipelines):
            pipeline = load_pipeline(name).model_copy(update={"quick_compiler": False})
            try:
                caught = catch_up(settings, scratch, pipeline, stage, asked.backlog)
            except AssertionError as error:  # continue with the others
                say(f"{name} {stage}: no figure: {error}")
                continue
            note_backlog(say, found, name, stage, caught)


def measure_latency(say: Say, asked: Asked, found: Found, stack: Stack) -> None:
    """All stages at once for every pipeline, one at a time for those to be measured alone."""
    plain = stack.data / "copy.toml"
    plain.write_text(COPY)
    run(say, found, stack, "copy", str(plain), ("ingest",), asked.seconds)
    for name in asked.pipelines:
        stages = tuple(stage for _, stage in asked.cells((name,)))
        if stages:
            run(say, found, stack, name, name, stages, asked.seconds)
    for name, stage in asked.cells(asked.alone):
        run(say, found, stack, f"{name} alone", name, (stage,), asked.seconds)


def run(
    say: Say,
    found: Found,
    stack: Stack,
    label: str,
    pipeline: str,
    stages: tuple[Stage, ...],
    seconds: int,
) -> None:
    """One run; its figures under `label`."""
    try:
        report = stack.run(pipeline, ",".join(stages), RATE_PER_SECOND, seconds)
    except (RuntimeError, TimeoutExpired) as error:  # continue with the others
        say(f"{label}: no figure: {error}")
        return
    (measured,) = report["pipelines"].values()
    verdict = "valid" if report["valid"] else f"INVALID: {' '.join(report['invalid_reasons'])}"
    clean = "clean" if report["conclusion"]["clean"] else "not clean"
    records = max(report["input"]["records"], 1)
    cpu_s = measured["resources"].get("cpu_seconds", 0.0) / records * 1e6
    for stage, cell in measured["stages"].items():
        note_latency(found.of(label, stage), cell["latency_ms"].get("latest", {}))
    # For all stages together, because they share one process.
    found.of(label, "all" if len(stages) > 1 else stages[0])["cpu_s_per_million_steady"] = cpu_s
    say(f"{label}: {', '.join(stages)} at {RATE_PER_SECOND}/s: {verdict}, ledger {clean}")


def note_latency(cell: dict[str, float], latest: dict[str, Any]) -> None:
    """Store the available percentiles."""
    cell.update(
        {f"{name}_ms": latest[name] for name in PERCENTILES if latest.get(name) is not None}
    )


def note_backlog(say: Say, found: Found, name: str, stage: str, caught: Any) -> None:
    """Store and print the result of a backlog."""
    cell = found.of(name, stage)
    cell["catch_up_records_per_second"] = caught.records_per_second
    cell["cpu_s_per_million_catching_up"] = caught.cpu_seconds_per_million
    say(
        f"{name} {stage}: {caught.records_per_second:,.0f} records/s, "
        f"{caught.cpu_seconds_per_million:.1f} CPU s per million, "
        f"{caught.outputs} of {caught.expected} outputs"
    )


COLUMNS = {
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "cpu_s_per_million_steady": "CPU s/M",
    "catch_up_records_per_second": "catch-up/s",
    "cpu_s_per_million_catching_up": "CPU s/M catching up",
}


def table_of(found: Found) -> str:
    """A table to print: ms at the steady rate, then the backlog."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("pipeline", "stage"):
        table.add_column(column, no_wrap=True)
    for column in COLUMNS.values():
        table.add_column(column, justify="right")
    order = {stage: number for number, stage in enumerate((*STAGES, "all"))}
    for (name, stage), cell in sorted(found.cells.items(), key=lambda c: (c[0][0], order[c[0][1]])):
        shown = (number(cell.get(figure)) for figure in COLUMNS)
        table.add_row(name, stage, *shown)
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def figures_of(found: Found) -> dict[str, float]:
    """Every figure by one name."""
    return {
        f"{pipeline.replace(' ', '_')}_{stage}_{name}": value
        for (pipeline, stage), cell in found.cells.items()
        for name, value in cell.items()
    }


def ratios_of(found: Found) -> dict[str, float]:
    """Real-time mode relative to micro-batches, and every ingest relative to the copy."""
    rate, ratios = "catch_up_records_per_second", {}
    for stage in STAGES:
        ours = found.cells.get(("spark-realtime", stage), {})
        peer = found.cells.get(("spark-microbatch", stage), {})
        if rate in ours and rate in peer:
            ratios[f"realtime_to_microbatch_{stage}_catch_up"] = ours[rate] / peer[rate]
        if ours.get("p50_ms") and "p50_ms" in peer:
            ratios[f"realtime_to_microbatch_{stage}_p50"] = peer["p50_ms"] / ours["p50_ms"]
    floor = found.cells.get(("copy", "ingest"), {})
    for (name, stage), cell in found.cells.items():
        if stage == "ingest" and name != "copy" and rate in cell and rate in floor:
            ratios[f"{name}_to_copy_ingest_catch_up"] = cell[rate] / floor[rate]
    return ratios
