"""Results of a command about more than one run: its repetition, pipelines measured alternately, and
the comparison with a baseline. Published as conclusions, and read back for reports.

The views `repetitions` and `comparisons` show the key `rows`.
"""

import json
from collections.abc import Iterator
from statistics import mean
from typing import Any

from analysis.costs import COST
from analysis.described import Row, row
from analysis.intervals import BETTER, SAME, UNKNOWN, WORSE, Interval
from schemas.events import BaselineCompared, Conclusion, PipelinesInterleaved, RunsRepeated
from schemas.threshold import SUSTAINABLE_RATE
from services.runtime.clickhouse import query

Report = dict[str, Any]
REPETITION, INTERLEAVED, BASELINE = "repetition", "interleaved", "baseline"
DESCRIBED = "described"  # has an interval of its own, but decides nothing
OF_RUN = """
SELECT toString(kind) AS kind, run_id, invalid_reasons, detail
FROM tidegauge.results_conclusions AS c
WHERE kind IN ('repetition', 'interleaved', 'baseline')
    AND has(JSONExtract(detail, 'runs', 'Array(String)'), {run_id:String})
ORDER BY c.time, c._offset
"""


def conclusions_of(report: Report) -> Iterator[Conclusion]:
    """What a report says about more than its own run; nothing for an empty report."""
    run_id = report.get("run_id", "")
    if repeated := report.get(REPETITION):
        yield RunsRepeated(
            run_id=run_id,
            invalid_reasons=() if report["valid"] else tuple(report["invalid_reasons"]),
            runs=tuple(one["run_id"] for one in repeated["runs"]),
            rows=tuple(_repeated_rows(repeated)),
            repetition=repeated,
        )
    if turns := report.get(INTERLEAVED):
        first, second = dict.fromkeys(turns["order"])
        yield PipelinesInterleaved(
            run_id=run_id,
            runs=tuple(turns.get("runs", [run_id])),
            rows=tuple({"pipeline": second} | one for one in _interleaved_rows(turns)),
            against=first,
            said=turns["said"],
            interleaved=turns | {"pairs": []},
        )
    if compared := report.get(BASELINE):
        yield BaselineCompared(
            run_id=run_id,
            invalid_reasons=tuple(compared["left_out"]),
            runs=(run_id,),
            rows=tuple(_baseline_row(one) for one in compared["rows"]),
            against=compared["name"],
            said=compared["said"],
            baseline=compared,
        )


def add_comparisons(url: str, report: Report) -> Report:
    """The report with what was published about its run: the keys `repetition` and `baseline`, and
    the decision over alternating pipelines if that is of several runs or cannot be computed
    anymore. The run of which the repetition was reported is INVALID if the repetition is. Raises
    QueryError."""
    found = dict(report)
    for one in query(url, OF_RUN, run_id=report["run_id"]):
        kind, detail = one["kind"], json.loads(one["detail"])
        if kind != INTERLEAVED:
            found[kind] = detail[kind]
        elif found[kind] is None or detail["runs"] != [report["run_id"]]:
            pairs = (found[kind] or detail[kind])["pairs"]  # of this run
            found[kind] = detail[kind] | {"pairs": pairs}
        stands_for_all = kind == REPETITION and one["run_id"] == report["run_id"]
        if stands_for_all and one["invalid_reasons"]:
            found |= {"valid": False, "invalid_reasons": one["invalid_reasons"]}
    return found


def _repeated_rows(repeated: Report) -> Iterator[Row]:
    for pipeline, one in repeated["pipelines"].items():
        for stage, cell in one["stages"].items():
            for definition, figures in cell["latency_ms"].items():
                for figure, found in figures.items():
                    yield _repeated_row(pipeline, stage, definition, figure, found)
        if cost := one["resources"].get(COST):
            yield _repeated_row(pipeline, "", "", COST, cost)
    if searched := repeated["search"]:
        low, high = searched["interval_per_second"]
        bounds = {"low": low, "high": high, "confidence": None}
        found = {"median": searched["median_per_second"], "values": searched["rates_per_second"]}
        pipeline = next(iter(repeated["pipelines"]), "")
        yield _repeated_row(pipeline, "", "", SUSTAINABLE_RATE, found | bounds)


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
