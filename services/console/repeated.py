"""Several runs of the same, for people: medians with intervals, and what was wrong with any run."""

from typing import Any

from rich.console import Console
from rich.text import Text

from analysis.costs import COST

Report = dict[str, Any]
REPEATED_FIGURES = ("p50", "p95", "p99")


def complaints(run: dict[str, Any]) -> list[str]:
    """Why one of several runs does not count as good, a sentence each. They decide the exit code,
    whichever run is the median run."""
    found = [*run["invalid_reasons"], *run.get("failed_thresholds", ())]
    if run["valid"] and not run["clean"]:
        found.append("Not every output was exact.")
    return found


def complaint_lines(report: Report) -> list[str]:
    """A line for each of several runs with complaints."""
    runs = report.get("repetition", {}).get("runs", ())
    return [f"{run['run_id']}: {' '.join(found)}" for run in runs if (found := complaints(run))]


def doubt_lines(report: Report) -> list[str]:
    """Which of several valid runs were unsteady or disturbed, a sentence each."""
    runs = report.get("repetition", {}).get("runs", ())
    return [f"{doubt}." for run in runs if run["valid"] for doubt in run.get("doubts", ())]


def show_repetition(console: Console, report: Report) -> None:
    """Print the medians over the runs with their intervals."""
    repeated = report["repetition"]
    runs = repeated["runs"]
    valid = sum(run["valid"] for run in runs)
    told = f", {valid} valid; {_median_run(report)}."
    console.print(Text.assemble((f"{len(runs)} runs", "bold"), told))
    for line in (*complaint_lines(report), *doubt_lines(report), *median_lines(report)):
        console.print(f"  {line}", soft_wrap=True)
    said = [runs_sentence(repeated), "± above: variation between seconds of one run"]
    console.print("; ".join(filter(None, said)), soft_wrap=True, style="dim")


def median_lines(report: Report) -> list[str]:
    """The medians over several runs with their intervals, a line for each stage, cost, and search;
    none for a single run."""
    repeated = report.get("repetition", {})
    found = []
    for pipeline, one in repeated.get("pipelines", {}).items():
        for stage, cell in one["stages"].items():
            told = [
                f"{figure} {_interval(cell['latency_ms']['latest'][figure])}"
                for figure in REPEATED_FIGURES
            ]
            found.append(f"{pipeline} {stage}: {', '.join(told)} ms")
        if cost := one["resources"].get(COST):
            found.append(f"{pipeline}: {_interval(cost)} core-seconds per million records")
    if searched := repeated.get("search"):
        found.append(searches_sentence(searched))
    return found


def runs_sentence(repeated: dict[str, Any]) -> str:
    """What the medians and the text in brackets after them are; empty without an interval."""
    confidence, valid = repeated["confidence"], sum(run["valid"] for run in repeated["runs"])
    if confidence is None:
        return ""
    between = f"interval at {100 * confidence:.4g}% confidence, from the variation between runs"
    if valid == 2:
        between = "both values; two runs are too few for an interval"
    return f"median of the runs [{between}]"


def searches_sentence(searched: dict[str, Any]) -> str:
    """The result of several searches for the sustainable rate."""
    low, high = searched["interval_per_second"]
    rates = ", ".join(f"{rate:.0f}" for rate in searched["rates_per_second"])
    above = (
        f"{low:.0f} and {high:.0f}/s"
        if high is not None
        else f"{low:.0f}/s and no known upper bound"
    )
    return (
        f"Searches found {rates} records/s: they differ by {searched['differ_by']:.0%}, and the "
        f"sustainable rate is between {above}."
    )


def _median_run(report: Report) -> str:
    run_id = report["repetition"]["median_run"]
    if not run_id:
        return "above is the last run, because none is valid"
    is_above = run_id == report["run_id"]
    return f"above is the median run {run_id}" if is_above else f"the median run is {run_id}"


def _interval(interval: dict[str, Any]) -> str:
    if interval["low"] is None:
        return f"{interval['median']:.4g}"
    return f"{interval['median']:.4g} [{interval['low']:.4g}–{interval['high']:.4g}]"
