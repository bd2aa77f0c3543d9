"""Engines compared with each other and with a floor: every pipeline alone, alternately, in rounds.

Steady: runs of the workload `latency` at 400 records/s after a warm-up, with the requested stages
at once. Backlog: see _catch_up.py, one stage at a time; it also measures the time from the start of
the program to its first output. The floor is the toy engine of `examples/`: a loop in plain Python.
From a backlog Flink is also compared with a job written by hand for these records
(`examples/plain_flink`).
A figure is the median over the rounds, with a bootstrap interval as `_low` and `_high`; after a
single round a latency has the interval of the blocks of its run. `_doubtful_runs` is the number of
these runs that were not steady or were disturbed, `_heap_limited_runs` the number of those that the
heap of a JVM limited, which are in no ratio. Ratios are relative to the floor.
Pipelines that cannot be installed or fail are reported in one sentence and omitted.
Some stages are measured once more with a larger backlog, if there is one: `_large` in a figure's
name. The ratio `large_to_usual` of its rate to the usual one is far below 1 if an engine collapses.
_engines_page.py generates a table and a picture of the figures.

Settings, by environment variable: TIDEGAUGE_BENCH_PIPELINES (comma-separated names; default: all
pipelines of engines), TIDEGAUGE_BENCH_STAGES (1-3), TIDEGAUGE_BENCH_ROUNDS (3),
TIDEGAUGE_BENCH_WARM_UP (90 s), TIDEGAUGE_BENCH_SECONDS (30, measured, per run; 0: no latency),
TIDEGAUGE_BENCH_BACKLOG (1,000,000 records; 0: no backlog), TIDEGAUGE_BENCH_LARGE_BACKLOG
(4,000,000 records, in one round; 0: none).
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from analysis.bootstrap import median_interval
from analysis.comparability import is_doubtful
from analysis.room import heap_sentence, limited_pipelines
from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from schemas.model import Stage, parse_stages
from schemas.pipeline import Pipeline
from schemas.report import Report
from schemas.validation_errors import DefinitionError
from services.definitions.engines import FOLDERS, engine_for
from services.definitions.pipelines import (
    PIPELINES_DIR,
    for_purpose,
    load_pipeline,
    names,
    stages_published,
)
from services.runtime.settings import ROOT, ServiceSettings, load_settings
from tests.benchmarks._catch_up import catch_up
from tests.benchmarks._measured import Measured, quotient
from tests.benchmarks._steady import Stack, running_stack
from tests.integration.kafka_broker import lasting, running_broker
from tests.traffic import STAGES, TRAFFIC

RATE_PER_SECOND = 400
FLOOR, FLOOR_ENGINES = "examples/toy_engine/pipeline.toml", "examples"
FLOOR_NAME = "toy"
FLOOR_ONLY = {FLOOR_NAME: "floor"}
# By pipeline, what it is compared with and how that is called in a ratio; others with the floor.
PEERS = {
    FLOOR_NAME: {},
    "plain-flink": FLOOR_ONLY,
    "flink": FLOOR_ONLY | {"plain-flink": "plain"},
    "spark-realtime": FLOOR_ONLY | {"flink": "flink", "kafka-streams": "kafka-streams"},
}
# Programs written by hand for the domain traffic, each measured beside the engine that it is a peer
# of, from a backlog: their settings are for that.
PLAIN = {"flink": str(ROOT / "examples/plain_flink/pipeline.toml")}
# They check Tidegauge, or are an example of measuring your own program.
NO_ENGINES = ("calibration", "external-python", "floor", "socket-python")
LIMITED = "_heap_limited_runs"
LARGE = "_large"  # of a cell: from the larger backlog
LARGE_STAGES = ("parse", "join")
TRIES = 2  # of an INVALID run
PERCENTILES = ("p50", "p95", "p99")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What to measure. files: names or paths of pipelines by name, the floor first."""

    files: dict[str, str]
    stages: tuple[Stage, ...]
    rounds: int
    warm_up_s: int
    seconds: int
    backlog: int
    large_backlog: int

    def of_round(self, number: int) -> list[str]:
        """The pipelines in the order of a round: each round begins with another one."""
        pipelines = list(self.files)
        first = number % max(len(pipelines), 1)
        return pipelines[first:] + pipelines[:first]

    def stages_of(self, name: str) -> tuple[Stage, ...]:
        """The requested stages that the pipeline supports."""
        return stages_published(load_pipeline(self.files[name]), TRAFFIC, self.stages)[0]


@dataclass
class Found:
    """Values of every figure by name, one per round. intervals: low and high from the blocks of the
    latest run. failed: pipelines without a result. doubtful: number of runs that were not steady or
    were disturbed, by pipeline. limited: number of runs that the heap of the JVM limited, by
    pipeline, or by pipeline and stage for a backlog."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    doubtful: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    limited: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, name: str, value: float | None) -> None:
        """Store a value, if there is one."""
        if value is not None:
            self.values[name].append(float(value))

    def figures(self) -> dict[str, float]:
        """The median of each figure, with an interval if there are several values."""
        figures: dict[str, float] = {}
        for name, values in self.values.items():
            interval = median_interval(values)
            figures[name] = interval.value
            low, high = interval.low, interval.high
            if len(values) == 1:
                low, high = self.intervals.get(name, (None, None))
            if low is not None and high is not None:
                figures |= {f"{name}_low": low, f"{name}_high": high}
        figures |= {f"{name}_doubtful_runs": n for name, n in self.doubtful.items()}
        return figures | {f"{name}{LIMITED}": n for name, n in self.limited.items()}


def measure(say: Say, scratch: Path) -> Measured:
    """Measure what the environment requests."""
    found = Found()
    with floor_among_the_engines():
        asked = what_is_asked()
        asked = installable(say, asked, load_settings(ServiceSettings))
        if asked.seconds:
            with running_stack(scratch / "stack") as stack:
                for number in range(asked.rounds):
                    for name in asked.of_round(number):
                        if asked.files[name] in PLAIN.values():
                            continue
                        measure_steady(say, asked, found, stack, name)
        if asked.backlog:
            measure_backlogs(say, asked, found, scratch)
    figures = found.figures()
    return Measured(figures, ratios_of(figures))


@contextmanager
def floor_among_the_engines() -> Iterator[None]:
    """Register the engine of the floor, for this process and its children."""
    before = os.environ.get(FOLDERS)
    os.environ[FOLDERS] = os.pathsep.join(filter(None, [before, str(ROOT / FLOOR_ENGINES)]))
    try:
        yield
    finally:
        os.environ.pop(FOLDERS)
        if before is not None:
            os.environ[FOLDERS] = before


def what_is_asked() -> Asked:
    """The settings of the environment. Raises DefinitionError."""
    get = os.environ.get
    every = ",".join(name for name in names(PIPELINES_DIR) if name not in NO_ENGINES)
    given = filter(None, get("TIDEGAUGE_BENCH_PIPELINES", every).split(","))
    stages = parse_stages(get("TIDEGAUGE_BENCH_STAGES", "1-3"), STAGES)
    files = {FLOOR_NAME: str(ROOT / FLOOR)} | {load_pipeline(file).name: file for file in given}
    peers = [PLAIN[name] for name in files if name in PLAIN]
    files |= {load_pipeline(file).name: file for file in peers}
    return Asked(
        files,
        stages,
        int(get("TIDEGAUGE_BENCH_ROUNDS", "3")),
        int(get("TIDEGAUGE_BENCH_WARM_UP", "90")),
        int(get("TIDEGAUGE_BENCH_SECONDS", "30")),
        int(get("TIDEGAUGE_BENCH_BACKLOG", "1_000_000")),
        int(get("TIDEGAUGE_BENCH_LARGE_BACKLOG", "4_000_000")),
    )


def installable(say: Say, asked: Asked, settings: ServiceSettings) -> Asked:
    """The same without pipelines that publish none of the stages or whose engine cannot be
    installed."""
    files = {}
    for name, file in asked.files.items():
        try:
            install_engines([engine_for(load_pipeline(file))], settings, say)
        except (InstallError, DefinitionError) as error:
            say(f"{name} is left out: {error}.")
            continue
        if not asked.stages_of(name):
            say(f"{name} is left out: it publishes none of {', '.join(asked.stages)}.")
            continue
        files[name] = file
    return replace(asked, files=files)


def measure_steady(say: Say, asked: Asked, found: Found, stack: Stack, name: str) -> None:
    """One round of one pipeline at a steady rate; repeated if the run is INVALID."""
    if name in found.failed:
        return
    stages = asked.stages_of(name)
    for _ in range(TRIES):
        try:
            report = stack.run(
                asked.files[name],
                ",".join(stages),
                RATE_PER_SECOND,
                asked.seconds,
                asked.warm_up_s,
            )
        except (RuntimeError, TimeoutExpired) as error:
            say(f"{name} is left out: {last_line(error)}")
            found.failed.add(name)
            return
        if report["valid"]:
            note_run(found, name, report)
            clean = "clean" if report["conclusion"]["clean"] else "not clean"
            say(f"{name}: run {report['run_id']} at {RATE_PER_SECOND}/s, ledger {clean}")
            return
        say(f"{name}: run {report['run_id']} is INVALID: {' '.join(report['invalid_reasons'])}")


def note_run(found: Found, name: str, report: dict[str, Any]) -> None:
    """The figures of one valid run."""
    if is_doubtful(Report.model_validate(report)):
        found.doubtful[name] += 1
    if limited_pipelines(report.get("heap") or {}):
        found.limited[name] += 1
    (measured,) = report["pipelines"].values()
    for stage, cell in measured["stages"].items():
        latest = cell["latency_ms"].get("latest", {})
        for percentile in PERCENTILES:
            figure = f"{name}_{stage}_{percentile}_ms"
            found.note(figure, latest.get(percentile))
            if interval := (latest.get("intervals") or {}).get(percentile):
                found.intervals[figure] = (interval[0], interval[1])
    used = measured["resources"]
    found.note(f"{name}_steady_core_s_per_million", used.get("core_seconds_per_million_records"))
    memory = used.get("memory_bytes_max")
    found.note(f"{name}_peak_memory_mb", memory and memory / 1e6)


def measure_backlogs(say: Say, asked: Asked, found: Found, scratch: Path) -> None:
    """Every stage of every pipeline, on a broker without a stack."""
    home = scratch / "broker"
    home.mkdir()
    with running_broker(home, options=lasting()) as settings:
        for number in range(asked.rounds):
            for name in asked.of_round(number):
                for stage in asked.stages_of(name):
                    backlog = Backlog(name, stage, asked.backlog)
                    measure_backlog(say, asked, found, scratch, settings, backlog)
        for name in asked.files if asked.large_backlog else ():
            for stage in asked.stages_of(name):
                if stage in LARGE_STAGES:
                    backlog = Backlog(name, stage, asked.large_backlog, LARGE)
                    measure_backlog(say, asked, found, scratch, settings, backlog)


@dataclass(frozen=True)
class Backlog:
    """What one pipeline is to catch up with in one stage. kind: end of the names of its figures."""

    pipeline: str
    stage: Stage
    records: int
    kind: str = ""

    @property
    def cell(self) -> str:
        """Begin of the names of its figures."""
        return f"{self.pipeline}_{self.stage}{self.kind}"


def measure_backlog(
    say: Say,
    asked: Asked,
    found: Found,
    scratch: Path,
    settings: ServiceSettings,
    backlog: Backlog,
) -> None:
    """One round of one stage."""
    name, stage, cell = backlog.pipeline, backlog.stage, backlog.cell
    if cell in found.failed or name in found.failed:
        return
    try:
        pipeline = for_purpose(load_pipeline(asked.files[name]), "throughput")
        pipeline = compiled_for_long(pipeline)
        caught = catch_up(settings, scratch, pipeline, stage, backlog.records)
    except (AssertionError, OSError) as error:
        say(f"{name} {stage} has no figure for {backlog.records:,} records: {last_line(error)}")
        found.failed.add(cell)
        return
    found.note(f"{cell}_records_per_second", caught.records_per_second)
    found.note(f"{cell}_core_s_per_million", caught.cpu_seconds_per_million)
    if not backlog.kind:
        found.note(f"{name}_start_s", caught.start_s)
    if caught.heap is not None and caught.heap["limited"]:
        found.limited[cell] += 1
        say(heap_sentence({f"{name} {stage}": caught.heap}))
    say(
        f"{name} {stage}, {backlog.records:,}: {caught.records_per_second:,.0f} records/s, "
        f"{caught.cpu_seconds_per_million:.1f} core-seconds per million, "
        f"first output after {caught.start_s:.1f} s, {caught.outputs} of {caught.expected} outputs"
    )


def is_limited(figures: dict[str, float], name: str) -> bool:
    """Whether the heap of a JVM limited any run of a figure."""
    pipeline, stage, *rest = name.split("_")
    is_backlog = rest[-2:] == ["per", "second"] or rest[-2:] == ["per", "million"]
    kind = LARGE if is_backlog and rest[0] == LARGE[1:] else ""
    run = f"{pipeline}_{stage}{kind}" if is_backlog else pipeline
    return f"{run}{LIMITED}" in figures


def compiled_for_long(pipeline: Pipeline) -> Pipeline:
    """Enable the optimising compiler, which pipelines disable for short warm-ups."""
    if "quick_compiler" not in pipeline.settings:
        return pipeline
    return pipeline.model_copy(update={"quick_compiler": False})


def last_line(error: Exception) -> str:
    """The last line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def ratios_of(figures: dict[str, float]) -> dict[str, float]:
    """Every latency and throughput relative to each peer's, above 1 if the first is better. Figures
    that the heap of a JVM limited are in none."""
    ratios: dict[str, float] = {}
    for name, ours in figures.items():
        pipeline, _, rest = name.partition("_")
        for peer, called in PEERS.get(pipeline, FLOOR_ONLY).items():
            theirs, to_peer = f"{peer}_{rest}", f"{pipeline}_to_{called}_{rest}"
            if not figures.get(theirs) or not ours:
                continue
            if is_limited(figures, name) or is_limited(figures, theirs):
                continue
            if rest.endswith(("_p50_ms", "_p95_ms", "_p99_ms")):
                ratios |= quotient(to_peer.removesuffix("_ms"), figures, theirs, name)
            elif rest.endswith("_records_per_second"):
                ratios |= quotient(to_peer, figures, name, theirs)
        ratios |= ratio_to_usual(figures, name)
    return ratios


def ratio_to_usual(figures: dict[str, float], name: str) -> dict[str, float]:
    """The ratio of a rate from a larger backlog to the usual one; none for other figures."""
    usual = name.replace(LARGE, "")
    if usual == name or not name.endswith("_records_per_second") or not figures.get(usual):
        return {}
    if is_limited(figures, name) or is_limited(figures, usual):
        return {}
    pipeline, stage, *_ = name.split("_")
    return quotient(f"{pipeline}_large_to_usual_{stage}", figures, name, usual)
