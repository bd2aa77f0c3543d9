"""The store: how fast it projects, and how long questions and dashboards take over a long history.

The events of the first figure are encoded as the bus has them and go through everything the
projector does with a polled batch, but not through a broker. The history is a thousand runs in
thirty days, made by the engine itself (_history.py), with 100 million rows of latency counts or as
many as TIDEGAUGE_BENCH_ROWS says; everything but latencies is what a run of SECONDS has. The
questions are asked ASKED times each, and so is every query of every dashboard, with the values that
its variables have at first, for each of RANGES that ends with the history. They take the same path
as over HTTP, on two threads. A panel's figure is the 95th percentile of all its queries and ranges.
A dashboard's is the longest time of a range for all its queries, one after the other.
"""

import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas import catalogue, codec
from services.runtime.grafana_macros import TimeRange
from services.store.batch import translate
from services.store.blocks import blocks
from services.store.chdb_engine import ChdbEngine
from services.store.ddl import DDL_DIR, ddl_statements
from services.store.engine import Query
from services.store.rollups import ROLLUPS
from services.store.rows import Record
from services.store.settings import StoreSettings
from services.store.tables import TABLES, Table
from tests.benchmarks._history import BETWEEN_S, COPIED, RUNS, copy_runs, fill_latencies
from tests.benchmarks._measured import Measured
from tests.benchmarks._results import (
    NEW_YEAR_MS,
    PIPELINES,
    SERIES,
    VALUES,
    run_events,
    run_id_of,
)
from tests.integration.dashboard_queries import dashboards, queries
from tests.traffic import STAGES

ROWS = 100_000_000
SECONDS = 34
PROJECTED_EVENTS = 20_000
WARMING = 1_000  # of them, whose rows are not counted
POLLED = 5_000  # records that the projector polls at once
ASKED = 5
RANGES = {"15_minutes": 900, "6_hours": 6 * 3600, "30_days": 30 * 86_400}  # seconds
RUNS_PER_CHANGE = 50
CONCLUSION = {
    "clean": True,
    "disturbed": False,
    "warm_up": {"seconds": 30, "until_steady": True, "steady": True, "moving": []},
    "late": {"of_seconds": SECONDS, "seconds": 1, "by": {"pipeline": 1}, "disturbed_by": []},
    "room": {"machine": {"cpu_cores": 1.5, "cpu_share": 0.75}, "kafka": {"cpu_cores": 0.4}},
    "thresholds": [
        {"threshold": f"{stage}.p99_ms <= 50", "pipeline": pipeline, "stage": stage}
        | {"value": 40, "limit": 50, "passed": True}
        for pipeline in PIPELINES
        for stage in STAGES
    ],
}


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Project, fill, ask."""
    engine = ChdbEngine(StoreSettings(data=scratch, query_threads=2))
    try:
        engine.execute(ddl_statements())
        rate = _project(engine)
        say(f"projected {rate:,.0f} rows/s of latency counts, with their sums per minute")
        engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
        engine.execute(["TRUNCATE TABLE tidegauge.latency_minutes"])
        rows = fill_latencies(engine, int(os.environ.get("TIDEGAUGE_BENCH_ROWS", ROWS)), say)
        _fill_runs(engine)
        milliseconds = _ask(engine, say)
        panels = _look(engine, say, NEW_YEAR_MS + 1000 * ((RUNS - 1) * BETWEEN_S + SECONDS))
    finally:
        engine.close()
    figures = {f"store_{name}_ms": value for name, value in milliseconds.items()}
    slowest = max(milliseconds.values())
    head = {"store_projected_rows_per_second": rate, "store_history_rows": float(rows)}
    return Measured(head | {"store_slowest_question_ms": slowest} | panels | figures)


def _project(engine: ChdbEngine) -> float:
    """Rows per second of `results_latency`, from encoded records to both tables, once warm."""
    table = TABLES[catalogue.LATENCY]
    records = [
        Record(table.topic, 0, offset, value) for offset, value in enumerate(_encoded(table))
    ]
    _projected(engine, table, records[:WARMING])
    began = time.perf_counter()
    polled = range(WARMING, len(records), POLLED)
    rows = sum(_projected(engine, table, records[at : at + POLLED]) for at in polled)
    return rows / (time.perf_counter() - began)


def _projected(engine: ChdbEngine, table: Table, records: Sequence[Record]) -> int:
    """Rows that records became."""
    rows = 0
    for block in blocks(table, translate(table, records, "bench").rows, StoreSettings().batch_rows):
        _insert(engine, table, block)
        rows += block.num_rows
    return rows


def _encoded(table: Table) -> list[bytes]:
    values = list(range(VALUES))
    event = {"run_id": run_id_of(0), "producer": "evaluator", "phase": "measure"}
    encoded = []
    for number in range(PROJECTED_EVENTS):
        pipeline, stage, definition = SERIES[number % len(SERIES)]
        second = NEW_YEAR_MS + number // len(SERIES) * 1000
        named = {"pipeline": pipeline, "stage": stage, "definition": definition}
        when = {"time": second + 900, "second": second}
        histogram = {"latencies_ms": [v + number % 50 for v in values], "counts": [3] * VALUES}
        encoded.append(codec.encode(table.record, event | named | when | histogram))
    return encoded


def _insert(engine: ChdbEngine, table: Table, block: pa.Table) -> None:
    engine.insert(table.name, block)
    for rollup in ROLLUPS.get(table.topic, ()):
        engine.insert(rollup.name, rollup.aggregate(block))


def _fill_runs(engine: ChdbEngine) -> None:
    """Everything but latencies: of the first run all, of the others what tells of them; the rest of
    theirs is that of the first."""
    copied = {table.topic for table in TABLES.values() if table.name in COPIED}
    events = list(run_events(0, SECONDS, NEW_YEAR_MS))
    for number in range(1, RUNS):
        start_ms = NEW_YEAR_MS + 1000 * number * BETWEEN_S
        own = run_events(number, SECONDS, start_ms)
        events += [one for one in own if one[0] not in copied]
        if number % RUNS_PER_CHANGE == 0:
            events.append((catalogue.CONCLUSIONS, _change(number, start_ms)))
    for topic, event in events:
        if topic == catalogue.CONCLUSIONS and event["kind"] == "run":
            event["detail"] = json.dumps(CONCLUSION)
    for topic, table in TABLES.items():
        encoded = [codec.encode(table.record, event) for name, event in events if name == topic]
        records = [Record(topic, 0, offset, value) for offset, value in enumerate(encoded)]
        for block in blocks(table, translate(table, records, "bench").rows, 500_000):
            engine.insert(table.name, block)
    copy_runs(engine)


def _change(number: int, at_ms: int) -> dict[str, Any]:
    level = {"median": 5.0, "low": 4.0, "high": 6.0, "runs": 20}
    detail = {
        **{"workload": "latency", "pipeline": "spark-realtime", "stage": "join"},
        **{"metric": "mean_ms", "last_run_before": run_id_of(number - 1), "before": level},
        **{"first_run_after": run_id_of(number), "after": level | {"median": 6.0}},
        **{"change": 0.2, "worse": True, "p_value": 0.001, "likely_causes": ["java: 17 → 21"]},
    }
    head = {"run_id": run_id_of(number), "time": at_ms, "producer": "conductor"}
    said = {"kind": "change_point", "valid": True, "invalid_reasons": []}
    return head | said | {"detail": json.dumps(detail)}


def _ask(engine: ChdbEngine, say: Callable[[str], None]) -> dict[str, float]:
    """Median milliseconds of each question; the first answer counts like the others."""
    medians = {}
    for path in sorted((DDL_DIR / "examples").glob("*.sql")):
        took = []
        for _time in range(ASKED):
            began = time.perf_counter()
            engine.answer(Query(path.read_text(), "JSONEachRow"))
            took.append(1000 * (time.perf_counter() - began))
        medians[path.stem.partition("_")[2].replace("-", "_")] = statistics.median(took)
    say(f"asked {len(medians)} questions, {ASKED} times each")
    return medians


def _look(engine: ChdbEngine, say: Callable[[str], None], end_ms: int) -> dict[str, float]:
    """Milliseconds: of every panel, of every dashboard, and of the slowest panel per range."""

    def ask(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(engine.answer(Query(sql, "JSON")).data)["data"]
        return found

    panels: dict[str, list[float]] = defaultdict(list)
    whole: dict[str, float] = defaultdict(float)
    figures = {}
    for name, seconds in RANGES.items():
        when = TimeRange(end_ms - 1000 * seconds, end_ms)
        slowest, where = 0.0, ""
        for dashboard in dashboards():
            opened = [0.0] * ASKED
            for asked in list(queries(dashboard, when, ask)):
                place = _figure(asked.dashboard, asked.kind, asked.name)
                for number in range(ASKED):
                    began = time.perf_counter()
                    ask(asked.sql)
                    took = 1000 * (time.perf_counter() - began)
                    panels[place].append(took)
                    opened[number] += took
                    if took > slowest:
                        slowest, where = took, place
            key = _figure(dashboard["title"])
            whole[key] = max(whole[key], statistics.median(opened))
        say(f"looked at {len(panels)} panels over {name}: the slowest {slowest:.0f} ms ({where})")
        figures[f"store_slowest_panel_{name}_ms"] = slowest
    p95 = {place: _p95(took) for place, took in panels.items()}
    worst = sorted(p95, key=lambda place: -p95[place])[:10]
    for place in worst:
        say(f"p95 {p95[place]:.0f} ms: {place}")
    figures["store_panels_p95_above_100_ms"] = float(sum(one > 100 for one in p95.values()))
    figures |= {f"store_dashboard_{name}_ms": took for name, took in sorted(whole.items())}
    return figures | {f"store_panel_{place}_ms": took for place, took in sorted(p95.items())}


def _figure(*names: str) -> str:
    """Names as a part of the name of a figure."""
    text = "_".join(names).lower()
    return "_".join("".join(one if one.isalnum() else " " for one in text).split())


def _p95(values: list[float]) -> float:
    """The nearest rank."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
