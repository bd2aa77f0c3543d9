"""The table and the picture of engines side by side, from figures of the benchmark `engines`.

    .venv/bin/python -m tests.benchmarks._engines_page FILE.json [FILE.json …]

Files are written by `./tidegauge bench engines --json FILE`; if a figure is in several, the last
one counts. Writes docs/engines.svg, and the table into README.md between its marks.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.console.report import charts
from services.console.report.charts import STYLES, Markup, Range, height_of, joined, ranges
from services.runtime.settings import ROOT
from tests.benchmarks.engines import LARGE, LIMITED
from tests.documentation import replaced
from tests.traffic import STAGES

PICTURE = ROOT / "docs" / "engines.svg"
WIDTH = 720.0
COLOURS = {"ingest": 0, "parse": 1, "join": 3, "tumbling": 2, "sliding": 6}  # in charts.STYLES
LEGEND = 22.0
Figures = dict[str, float]
MARK = " ¹"
MARKED = "¹ Runs of this pipeline were not steady or were disturbed."
HEAP_MARK = " ²"
HEAP_MARKED = "² Limited by the heap of its JVM; not the limit of the engine, and not ranked."


def main(paths: Sequence[str]) -> None:
    """Write table and picture."""
    figures: Figures = {}
    environment: dict[str, Any] = {}
    for path in paths:
        found = json.loads(Path(path).read_text())
        figures |= found["figures"]
        environment |= found["environment"]
    PICTURE.write_text(f"{picture(figures)}\n")
    readme = ROOT / "README.md"
    readme.write_text(replaced(readme.read_text(), "engines", table(figures, environment)))


def pipelines(figures: Figures) -> list[str]:
    """Names of the pipelines by ascending latency; those without a latency, or with one that the
    heap of a JVM limited, last."""
    found = {name.partition("_")[0] for name in figures}

    def latency(name: str) -> tuple[float, float]:
        if f"{name}{LIMITED}" in figures:
            return (float("inf"), float("inf"))
        of = [figures.get(f"{name}_{stage}_p50_ms") for stage in STAGES]
        tails = [figures.get(f"{name}_{stage}_p99_ms") for stage in STAGES]
        known, ends = [v for v in of if v is not None], [v for v in tails if v is not None]
        return (max(known, default=float("inf")), max(ends, default=float("inf")))

    return sorted(found, key=lambda name: (latency(name), name))


def stages(figures: Figures) -> list[str]:
    """The stages with any figure."""
    parts = {part for name in figures for part in name.split("_")[1:2]}
    return [stage for stage in STAGES if stage in parts]


def has_large(figures: Figures, stage: str) -> bool:
    """Whether a stage has a rate from the larger backlog."""
    return any(name.endswith(f"_{stage}{LARGE}_records_per_second") for name in figures)


def table(figures: Figures, environment: dict[str, Any]) -> str:
    """A Markdown table with a row per pipeline."""
    shown = stages(figures)
    head = ["pipeline", *(f"{stage}, ms" for stage in shown)]
    large = [stage for stage in shown if has_large(figures, stage)]
    head += [f"{stage}, k/s" for stage in shown] + [f"{stage}, large, k/s" for stage in large]
    head += ["core-s per million", "start, s", "memory, MB"]
    lines = [row(head), row(["---", *["---:"] * (len(head) - 1)])]
    for name in pipelines(figures):
        cells = [f"`{name}`"]
        mark = MARK if figures.get(f"{name}_doubtful_runs") else ""
        mark += HEAP_MARK if f"{name}{LIMITED}" in figures else ""
        latencies = [latency(figures, f"{name}_{stage}") for stage in shown]
        cells += [f"{one}{mark}" if one else "" for one in latencies]
        cells += [rate(figures, f"{name}_{stage}") for stage in shown]
        cells += [rate(figures, f"{name}_{stage}{LARGE}") for stage in large]
        costs = [figures.get(f"{name}_{stage}_core_s_per_million") for stage in shown]
        cells.append(" / ".join(f"{cost:.3g}" for cost in costs if cost is not None))
        cells += [amount(figures.get(f"{name}_{one}")) for one in ("start_s", "peak_memory_mb")]
        lines.append(row(cells))
    marks = {MARK: MARKED, HEAP_MARK: HEAP_MARKED}
    said = [text for mark, text in marks.items() if any(mark in line for line in lines)]
    return "\n".join([*lines, "", " ".join([*said, f"Measured on: {machine(environment)}."])])


def machine(environment: dict[str, Any]) -> str:
    """Processor, cores and memory in words."""
    memory_gb = environment.get("memory_bytes", 0) / 1e9
    return f"{environment.get('processor')}, {environment.get('cores')} cores, {memory_gb:.0f} GB"


def row(cells: Sequence[str]) -> str:
    """One line of Markdown."""
    return f"| {' | '.join(cells)} |"


def latency(figures: Figures, cell: str) -> str:
    """p50 / p95 / p99."""
    values = [figures.get(f"{cell}_{name}_ms") for name in ("p50", "p95", "p99")]
    return " / ".join(f"{value:.0f}" for value in values if value is not None)


def rate(figures: Figures, cell: str) -> str:
    """Thousands of records per second, with a mark if the heap of the JVM limited them."""
    found = figures.get(f"{cell}_records_per_second")
    mark = HEAP_MARK if f"{cell}{LIMITED}" in figures else ""
    return "" if found is None else f"{found / 1000:.3g}{mark}"


def amount(value: float | None) -> str:
    """At most three digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def picture(figures: Figures) -> Markup:
    """p50 to p99 of each stage of each pipeline."""
    shown = stages(figures)
    groups = []
    for name in pipelines(figures):
        rows = []
        for stage in shown:
            low, high = (figures.get(f"{name}_{stage}_{one}_ms") for one in ("p50", "p99"))
            if low is not None and high is not None:
                rows.append(Range("" if rows else name, low, high, COLOURS[stage]))
        if rows:
            groups.append(rows)
    label = "Latency of each pipeline from the median (dot) to the 99th percentile, in milliseconds"
    unit = "ms from the median (dot) to the 99th percentile (end of the line), scale log(1 + ms)"
    height = height_of(groups)
    return charts.file(
        WIDTH, height + LEGEND, label, ranges(unit, groups, WIDTH), legend(shown, height)
    )


def legend(shown: Sequence[str], y: float) -> Markup:
    """The colour of each stage."""
    parts, x = [], 200.0
    for stage in shown:
        parts.append(charts.dot(x, y + 6, 4, STYLES[COLOURS[stage]][0]))
        parts.append(charts.text(x + 9, y + 10, stage))
        x += 95
    return joined(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
