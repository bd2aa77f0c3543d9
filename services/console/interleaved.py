"""What a run says whose two pipelines were measured in turns: `interleaved` in its report."""

import json
from typing import Any

from analysis import interleaving
from analysis.comparability import doubts_of, needed_of
from schemas.protocol import Interleaving
from services.runtime.clickhouse import query

PHASES = (
    "SELECT phase, detail FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
    " AND event = 'phase_started' AND phase IN ('warm_up', 'measure')"
)
LATENCIES = (
    "SELECT pipeline, stage, intDiv(toUnixTimestamp64Milli(second), 1000) AS at_s,"
    " groupArray(latency_ms) AS latencies_ms, groupArray(l.count) AS counts"
    " FROM tidegauge.results_latency AS l WHERE run_id = {run_id:String}"
    " AND phase = 'measure' AND definition = 'latest'"
    " GROUP BY pipeline, stage, at_s ORDER BY pipeline, stage, at_s"
)
Report = dict[str, Any]
Latencies = dict[tuple[str, str], dict[int, dict[int, int]]]
Pair = tuple[interleaving.Block, interleaving.Block]
Figures = dict[str, float]


def add_interleaved(url: str, run_id: str, request: dict[str, Any], report: Report) -> None:
    """Set the key `interleaved` of a report; null where the pipelines were not measured in turns,
    or where seconds have expired. Raises QueryError."""
    report["interleaved"] = None
    said = request.get("interleaved")
    begun = {row["phase"]: json.loads(row["detail"]) for row in query(url, PHASES, run_id=run_id)}
    if said is None or report["seconds_expired"] or set(begun) != {"warm_up", "measure"}:
        return
    measured_s = begun["measure"]["start_ms"] // 1000, begun["measure"]["end_ms"] // 1000
    found = interleaving.blocks(
        said["order"], said["block_s"], begun["warm_up"]["start_ms"] // 1000, measured_s
    )
    turns = Interleaving.model_validate(said)
    report["interleaved"] = judged(_latencies(url, run_id), turns, found, report)


def judged(
    latencies: Latencies, turns: Interleaving, found: list[interleaving.Block], report: Report
) -> dict[str, Any]:
    """The key `interleaved`, given the latencies of each pipeline and stage by second."""
    first, second = tuple(dict.fromkeys(turns.order))
    pairs = interleaving.paired(found, first, second)
    stages = [
        stage
        for stage in report["pipelines"][first]["stages"]
        if stage in report["pipelines"][second]["stages"]
    ]
    values = {
        stage: _figures(
            [latencies.get((name, stage), {}) for name in (first, second)], pairs, turns
        )
        for stage in stages
    }
    differences = interleaving.differences(values)
    levels = {
        stage: {
            figure: _mean([pair[0][figure] for pair in values[stage] if figure in pair[0]])
            for figure in figures
        }
        for stage, figures in differences.items()
    }
    doubts = doubts_of(report)
    text = interleaving.as_said(first, second, differences, levels, doubts)
    return {
        "order": list(turns.order),
        "block_s": turns.block_s,
        "edge_s": turns.edge_s,
        "blocks": len(found),
        "pairs": [
            {
                "start_s": [block.start_s for block in pair],
                "stages": {stage: list(values[stage][place]) for stage in stages},
            }
            for place, pair in enumerate(pairs)
        ],
        "confidence": interleaving.CONFIDENCE,
        "differences": interleaving.as_json(differences, doubted=bool(doubts)),
        "said": f"{text} {needed_of([report])}".rstrip(),
    }


def _figures(
    of_both: list[dict[int, dict[int, int]]], pairs: list[Pair], turns: Interleaving
) -> list[tuple[Figures, Figures]]:
    """Of each pair the figures of the first pipeline's block and of the second's."""
    sides = []
    for side, seconds in enumerate(of_both):
        mine = [pair[side] for pair in pairs]
        outputs = interleaving.outputs_of(seconds, mine, turns.edge_s)
        sides.append([interleaving.figures_of(outputs[block]) for block in mine])
    return list(zip(*sides, strict=True))


def _latencies(url: str, run_id: str) -> Latencies:
    found: Latencies = {}
    for row in query(url, LATENCIES, run_id=run_id):
        counts = dict(zip(row["latencies_ms"], row["counts"], strict=True))
        found.setdefault((row["pipeline"], row["stage"]), {})[row["at_s"]] = counts
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def interleaved_sentences(report: Report) -> list[str]:
    """The decision in words, and what it rests on; nothing of a run that was not measured so."""
    found = report.get("interleaved")
    if found is None:
        return []
    pairs, length = len(found["pairs"]), found["block_s"] - 2 * found["edge_s"]
    return [
        f"In turns: {found['said']}",
        f"By {pairs} pairs of blocks of {found['block_s']} s, of which the middle {length} s "
        f"count; all bounds hold together with {found['confidence']:.0%} confidence.",
    ]
