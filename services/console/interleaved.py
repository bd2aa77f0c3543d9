"""The result of a run that measured two pipelines alternately: `interleaved` in its report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis import described, interleaving
from analysis.costs import COST, core_seconds_per_million_records
from analysis.interleaving import Turns
from schemas.protocol import INPUT_SECOND, MACHINE, Interleaving
from services.runtime.clickhouse import query

PHASES = (
    "SELECT phase, detail FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
    " AND event = 'phase_started' AND phase IN ('warm_up', 'measure')"
)
LATENCIES = (
    "SELECT pipeline, stage, at_s, groupArray(latency_ms) AS latencies_ms,"
    " groupArray(outputs) AS counts FROM"
    " (SELECT pipeline, stage, toUInt32(value) AS at_s, latency_ms, sum(s.count) AS outputs"
    " FROM tidegauge.results_slices AS s"
    f" WHERE run_id = {{run_id:String}} AND dimension = '{INPUT_SECOND}'"
    " GROUP BY pipeline, stage, at_s, latency_ms)"
    " GROUP BY pipeline, stage, at_s ORDER BY pipeline, stage, at_s"
)
SAMPLES = (
    "SELECT toUnixTimestamp64Milli(r.time) / 1000 AS at_s, interval_s, cpu_seconds, pipeline"
    " FROM tidegauge.results_resources AS r WHERE run_id = {run_id:String}"
    f" AND (pipeline != '' OR service = '{MACHINE}')"
)
INPUT = (
    "SELECT intDiv(toUnixTimestamp64Milli(second), 1000) AS at_s, sum(acknowledged) AS records"
    " FROM tidegauge.results_generator WHERE run_id = {run_id:String} GROUP BY at_s"
)
Report = dict[str, Any]
Latencies = dict[tuple[str, str], dict[int, dict[int, int]]]
Pair = tuple[interleaving.Block, interleaving.Block]
Figures = dict[str, float]
Costs = dict[interleaving.Block, float]


def add_interleaved(url: str, run_id: str, request: dict[str, Any], report: Report) -> None:
    """Set the key `interleaved` of a report; null if the pipelines were not measured alternately,
    or if its seconds have expired. Rates and costs of a pipeline are then those of its own turns.
    Raises QueryError."""
    report["interleaved"] = None
    turns = turns_of(url, run_id, request)
    if turns is None:
        return
    usage = Usage.of(url, run_id)
    for name, pipeline in report["pipelines"].items():
        mine = turns.seconds_of(name)
        for stage in pipeline["stages"].values():
            stage["records_per_second"] *= len(range(*turns.measured_s)) / max(1, len(mine))
        if pipeline["resources"]:
            pipeline["resources"] |= {
                COST: usage.cost(name, mine),
                "core_seconds_interval": None,
            }
    latencies = latencies_of(url, run_id)
    if latencies and not report["seconds_expired"]:
        found = blocks_of(turns)
        costs = usage.by_block(found, turns.said.edge_s)
        report["interleaved"] = judged(latencies, turns.said, found, report, costs)


def turns_of(url: str, run_id: str, request: dict[str, Any]) -> Turns | None:
    """The turns of the pipelines; None if they were measured at once or not at all. Raises
    QueryError."""
    said = request.get("interleaved")
    if said is None:
        return None
    begun = {row["phase"]: json.loads(row["detail"]) for row in query(url, PHASES, run_id=run_id)}
    if set(begun) != {"warm_up", "measure"}:
        return None
    measured_s = begun["measure"]["start_ms"] // 1000, begun["measure"]["end_ms"] // 1000
    start_s = begun["warm_up"]["start_ms"] // 1000
    return Turns(Interleaving.model_validate(said), start_s, measured_s)


@dataclass(frozen=True)
class Usage:
    """Resource samples of the pipelines and of the machine, and input records by second."""

    samples: list[dict[str, Any]]
    records: dict[int, int]

    @classmethod
    def of(cls, url: str, run_id: str) -> "Usage":
        """Of a run. Raises QueryError."""
        records = {row["at_s"]: row["records"] for row in query(url, INPUT, run_id=run_id)}
        return cls(query(url, SAMPLES, run_id=run_id), records)

    def cost(self, pipeline: str, seconds: set[int]) -> float | None:
        """Core-seconds per million records of a pipeline in some seconds of its turns, from the
        resource samples whose midpoint is in one."""
        used = [
            row
            for row in self.samples
            if row["pipeline"] in (pipeline, "")
            and int(row["at_s"] - row["interval_s"] / 2) in seconds
        ]
        return core_seconds_per_million_records(
            sum(row["cpu_seconds"] for row in used if row["pipeline"]),
            sum(self.records.get(second, 0) for second in seconds),
            machine_s=sum(row["interval_s"] for row in used if not row["pipeline"]),
            measured_s=len(seconds),
        )

    def by_block(self, found: list[interleaving.Block], edge_s: int) -> Costs:
        """The cost in the middle of each block; blocks without samples are omitted."""
        sampled = {
            int(row["at_s"] - row["interval_s"] / 2) for row in self.samples if row["pipeline"]
        }
        costs = {}
        for block in found:
            seconds = set(range(block.start_s + edge_s, block.end_s - edge_s))
            cost = self.cost(block.pipeline, seconds) if sampled & seconds else None
            if cost is not None:
                costs[block] = cost
        return costs


def blocks_of(turns: Turns) -> list[interleaving.Block]:
    """The blocks that were measured completely."""
    said, first_s = turns.said, turns.load_start_s + turns.said.first_s
    return interleaving.blocks(said.order, said.block_s, first_s, turns.measured_s)


def judged(
    latencies: Latencies,
    turns: Interleaving,
    found: list[interleaving.Block],
    report: Report,
    costs: Mapping[interleaving.Block, float],
) -> dict[str, Any]:
    """The key `interleaved`, given the latencies of each pipeline and stage by second of the latest
    input, and the cost of each block."""
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
    costs_of = _costs(pairs, costs)
    return {
        "order": list(turns.order),
        "block_s": turns.block_s,
        "edge_s": turns.edge_s,
        "blocks": len(found),
        "pairs": [
            {
                "start_s": [block.start_s for block in pair],
                "stages": {stage: list(values[stage][place]) for stage in stages},
                "costs": list(costs_of[place]),
            }
            for place, pair in enumerate(pairs)
        ],
        **interleaving.decision(turns.order, values | {"": costs_of}, [report]),
    }


def _figures(
    of_both: list[dict[int, dict[int, int]]], pairs: list[Pair], turns: Interleaving
) -> list[tuple[Figures, Figures]]:
    """For each pair, the figures of the first pipeline's block and of the second's."""
    sides = []
    for side, seconds in enumerate(of_both):
        mine = [pair[side] for pair in pairs]
        outputs = interleaving.outputs_of(seconds, mine, turns.edge_s)
        sides.append([interleaving.figures_of(outputs[block]) for block in mine])
    return list(zip(*sides, strict=True))


def _costs(
    pairs: list[Pair], costs: Mapping[interleaving.Block, float]
) -> list[tuple[Figures, Figures]]:
    """The same for the cost."""
    first, second = (
        [{COST: costs[pair[side]]} if pair[side] in costs else {} for pair in pairs]
        for side in (0, 1)
    )
    return list(zip(first, second, strict=True))


def latencies_of(url: str, run_id: str) -> Latencies:
    """Number of measured outputs by latency, for each pipeline and stage of a run and each second
    of the latest input. Raises QueryError."""
    found: Latencies = {}
    for row in query(url, LATENCIES, run_id=run_id):
        counts = dict(zip(row["latencies_ms"], row["counts"], strict=True))
        found.setdefault((row["pipeline"], row["stage"]), {})[row["at_s"]] = counts
    return found


def interleaved_sentences(report: Report) -> list[str]:
    """The decision and its basis in words; empty for a run that was not interleaved."""
    found = report.get("interleaved")
    if found is None:
        return []
    length, runs = found["block_s"] - 2 * found["edge_s"], found.get("runs", ())
    of_runs = f" of {len(runs)} runs" if len(runs) > 1 else f" of {runs[0]}" if runs else ""
    rows = [described.in_words(row) for row in found.get("described", ()) if not row["stage"]]
    order = " → ".join(dict.fromkeys(found.get("order", ())))
    beside = f"Described only, {order}, with an interval of its own: "
    return [
        f"Interleaved: {found['said']}",
        f"From {found['blocks']} blocks of {found['block_s']} s{of_runs}, compared in pairs, using "
        f"the middle {length} s of each; all intervals hold together with "
        f"{found['confidence']:.0%} confidence.",
        *([f"{beside}{'; '.join(rows)}."] if rows else []),
    ]
