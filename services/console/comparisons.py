"""Results of a command about more than one run: its repetition, pipelines measured alternately, and
the comparison with a baseline. Published as conclusions, and read back for reports.

The views `repetitions` and `comparisons` show the key `rows`.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

from analysis.costs import COST
from analysis.described import Row, row
from analysis.interleaving import pooled
from analysis.intervals import BETTER, SAME, UNKNOWN, WORSE, Interval
from services.runtime.clickhouse import query

Report = dict[str, Any]
REPETITION, INTERLEAVED, BASELINE = "repetition", "interleaved", "baseline"
DESCRIBED = "described"  # has an interval of its own, but decides nothing
NONE_VALID = "No run is valid."
OF_RUN = """
SELECT argMax(detail, (c.time, c._offset)) AS detail
FROM tidegauge.results_conclusions AS c
WHERE kind = {kind:String} AND (
    run_id = {run_id:String} OR has(JSONExtract(detail, 'runs', 'Array(String)'), {run_id:String})
)
HAVING count() > 0
"""


@dataclass(frozen=True)
class Conclusion:
    """A conclusion to be published. reasons: why it is not valid, one sentence each."""

    kind: str
    reasons: list[str]
    detail: dict[str, Any]


def conclusions_of(report: Report) -> Iterator[Conclusion]:
    """What a report says about more than its own run."""
    if repeated := report.get(REPETITION):
        detail = {"runs": [one["run_id"] for one in repeated["runs"]], REPETITION: repeated}
        reasons = [] if repeated["median_run"] else [NONE_VALID]
        yield Conclusion(REPETITION, reasons, detail | {"rows": list(_repeated_rows(repeated))})
    if turns := report.get(INTERLEAVED):
        first, second = dict.fromkeys(turns["order"])
        rows = [{"pipeline": second} | one for one in _interleaved_rows(turns)]
        told = {"against": first, "said": turns["said"], "rows": rows}
        runs = turns.get("runs", [report["run_id"]])
        yield Conclusion(INTERLEAVED, [], {"runs": runs} | told)
    if compared := report.get(BASELINE):
        rows = [_baseline_row(one) for one in compared["rows"]]
        told = {"against": compared["name"], "said": compared["said"], "rows": rows}
        detail = {"runs": [report["run_id"]], BASELINE: compared}
        yield Conclusion(BASELINE, compared["left_out"], detail | told)


def add_comparisons(url: str, report: Report, report_of: Callable[[str, str], Report]) -> Report:
    """The report with the keys `repetition` and `baseline` if its run was repeated or compared with
    a baseline, and with the decision over all repetitions of alternating pipelines. Raises
    QueryError."""
    found = dict(report)
    for kind in (REPETITION, BASELINE):
        if rows := query(url, OF_RUN, run_id=report["run_id"], kind=kind):
            found[kind] = json.loads(rows[0]["detail"])[kind]
    if REPETITION in found and report["interleaved"]:
        valid = [one["run_id"] for one in found[REPETITION]["runs"] if one["valid"]]
        found[INTERLEAVED] = pooled([report_of(url, one) for one in valid]) or found[INTERLEAVED]
    return found


def _repeated_rows(repeated: Report) -> Iterator[Row]:
    for pipeline, one in repeated["pipelines"].items():
        for stage, cell in one["stages"].items():
            for definition, figures in cell["latency_ms"].items():
                for figure, found in figures.items():
                    yield _repeated_row(pipeline, stage, definition, figure, found)
        if cost := one["resources"].get(COST):
            yield _repeated_row(pipeline, "", "", COST, cost)


def _repeated_row(pipeline: str, stage: str, definition: str, figure: str, found: Row) -> Row:
    where = {"pipeline": pipeline, "stage": stage, "definition": definition, "figure": figure}
    told = {name: found[name] for name in ("median", "low", "high", "confidence")}
    return where | told | {"count": len(found["values"])}


def _interleaved_rows(turns: Report) -> Iterator[Row]:
    for stage, figures in turns["differences"].items():
        for figure, one in figures.items():
            both = [pair["stages"][stage] for pair in turns["pairs"]]
            pairs = [(a[figure], b[figure]) for a, b in both if figure in a and figure in b]
            before, after = map(mean, zip(*pairs, strict=True))
            step = Interval(one["value"], one["low"], one["high"])
            yield row(stage, figure, before, after, step) | {"verdict": _verdict(one)}
    for one in turns["described"]:
        yield one | {"verdict": DESCRIBED}


def _verdict(one: Row) -> str:
    """Of a difference of latencies. A doubtful one is not real, although its interval excludes
    zero."""
    if one["real"]:
        return WORSE if one["value"] > 0 else BETTER
    return SAME if one["low"] <= 0 <= one["high"] else UNKNOWN


def _baseline_row(one: Row) -> Row:
    step = Interval(one["now"] - one["before"], None, None)
    found = row(one["stage"], one["figure"], one["before"], one["now"], step)
    return found | {"pipeline": one["pipeline"], "verdict": one["verdict"]}
