"""Compares a report with a baseline, the report of an earlier run. Pure.

With five runs or more on each side (`--repeat 5`), a difference is judged by the variation between
runs (Welch 1947), jointly for all figures of the comparison (Bonferroni). With fewer runs that
variation is unknown: the 95 % intervals of both reports are compared, and the result applies to
these runs only.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

from analysis.comparability import doubts_of
from analysis.comparison import CONFIDENCE, ENOUGH_RUNS, run_difference

Report = dict[str, Any]
Row = dict[str, Any]
FIGURES = ("p50", "p95", "p99")
RATE_TOLERANCE = 0.02
SAME, SLOWER, FASTER, UNKNOWN = "same", "slower", "faster", "unknown"


def compared(report: Report, baseline: Report, name: str) -> dict[str, Any]:
    """Keys: `name` of the baseline, its `run_id`; `by`: what the judgement uses, `runs` or
    `seconds`; `left_out`: why the two are not comparable; `doubts`: why a difference may have
    another cause; `rows`: latencies of both, ms, with `verdict`; `passed`: whether nothing is
    slower, None if that is not decided; `said`: the result in sentences.
    """
    found: dict[str, Any] = {
        "name": name,
        "run_id": baseline.get("run_id", ""),
        "by": "seconds",
        "left_out": _differs(report, baseline),
        "doubts": [doubt for one in (baseline, report) for doubt in doubts_of(one)],
        "rows": [],
        "passed": None,
    }
    if not found["left_out"]:
        cells = list(_cells(report, baseline))
        runs = [_repeated(one, *cell) for cell in cells for one in cell[0]]
        found["by"] = "runs" if runs and min(map(len, runs)) >= ENOUGH_RUNS else "seconds"
        found["rows"] = [_row(cell, found["by"], len(cells)) for cell in cells]
        if found["by"] == "runs" and not found["doubts"]:
            found["passed"] = not any(row["verdict"] == SLOWER for row in found["rows"])
    return found | {"said": _said(found)}


def _differs(report: Report, baseline: Report) -> list[str]:
    sides = [_identity(one) for one in (report, baseline)]
    found = [
        f"{key} {mine or 'none'}, not {sides[1][key] or 'none'}"
        for key, mine in sides[0].items()
        if mine != sides[1][key]
    ]
    now, before = (one["input"].get("records_per_second") or 0.0 for one in (report, baseline))
    if abs(now - before) > RATE_TOLERANCE * max(now, before):
        found.append(f"rate {now:.4g} records/s, not {before:.4g}")
    return found


def _identity(report: Report) -> dict[str, str]:
    environment = report.get("environment", {})
    return {
        **{key: str(report.get(key, "")) for key in ("workload", "domain")},
        **{key: str(environment.get(key, "")) for key in ("processor", "cores")},
    }


Cell = tuple[tuple[tuple[Report, str], tuple[Report, str]], str, str]


def _cells(report: Report, baseline: Report) -> Iterator[Cell]:
    """Both reports with the name of the pipeline, the stage and the figure. The only pipeline of
    one is compared with the only one of the other."""
    mine, theirs = report["pipelines"], baseline["pipelines"]
    pairs = [(name, name) for name in mine if name in theirs]
    if not pairs and len(mine) == len(theirs) == 1:
        pairs = [(*mine, *theirs)]
    for now, before in pairs:
        for stage in mine[now]["stages"]:
            latencies = [
                one["pipelines"][name]["stages"].get(stage, {}).get("latency_ms", {})
                for one, name in ((report, now), (baseline, before))
            ]
            if all("latest" in one for one in latencies):
                for figure in FIGURES:
                    yield ((baseline, before), (report, now)), stage, figure


def _repeated(side: tuple[Report, str], _sides: Any, stage: str, figure: str) -> list[float]:
    """The figure of every run of a repeated one."""
    report, pipeline = side
    stages = report.get("repetition", {}).get("pipelines", {}).get(pipeline, {}).get("stages", {})
    latency = stages.get(stage, {}).get("latency_ms", {}).get("latest", {})
    values: list[float] = latency.get(figure, {}).get("values", [])
    return values


def _row(cell: Cell, by: str, cells: int) -> Row:
    sides, stage, figure = cell
    if by == "runs":
        before, now = (_repeated(side, *cell) for side in sides)
        interval = run_difference(before, now, 1 - (1 - CONFIDENCE) / cells)
        values = [median(before), median(now)]
        verdict = SAME
        if interval.excludes_zero:
            verdict = SLOWER if interval.value > 0 else FASTER
    else:
        latencies = [
            one["pipelines"][name]["stages"][stage]["latency_ms"]["latest"] for one, name in sides
        ]
        values = [latency[figure] for latency in latencies]
        verdict = _apart(*((one.get("intervals") or {}).get(figure) for one in latencies))
    return {
        "pipeline": sides[1][1],
        "stage": stage,
        "figure": figure,
        "before": values[0],
        "now": values[1],
        "verdict": verdict,
    }


def _apart(before: list[float] | None, now: list[float] | None) -> str:
    if before is None or now is None:
        return UNKNOWN
    if now[0] > before[1]:
        return SLOWER
    return FASTER if now[1] < before[0] else SAME


def _said(found: dict[str, Any]) -> str:
    head = f"Compared with the baseline {found['name']}"
    if found["left_out"]:
        return f"Not compared with the baseline {found['name']}: {'; '.join(found['left_out'])}."
    if not found["rows"]:
        return f"{head}: no stage in common."
    told = [
        f"{verdict} in {', '.join(cells)}"
        for verdict in (SLOWER, FASTER)
        if (cells := [_in_words(row) for row in found["rows"] if row["verdict"] == verdict])
    ]
    said = f"{head}: {' and '.join(told) or 'no significant difference'}."
    if all(row["verdict"] == UNKNOWN for row in found["rows"]):
        said = f"{head}: too little data for intervals."
    if found["doubts"]:
        return f"{said} This is not conclusive: {'; '.join(found['doubts'])}."
    if found["by"] == "seconds":
        return (
            f"{said} This applies to these runs and does not affect the exit code; --repeat "
            f"{ENOUGH_RUNS} on both sides decides."
        )
    return said


def _in_words(row: Row) -> str:
    where = f"{row['pipeline']} {row['stage']} {row['figure']}"
    return f"{where} ({row['before']:g} → {row['now']:g} ms)"
