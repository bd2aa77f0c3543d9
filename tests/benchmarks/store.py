"""The store: how fast it projects, and how long questions and dashboards take over a long history.

The events of the first figure are encoded as the bus has them and go through everything the
projector does with a polled batch, but not through a broker. The history is then filled with rows
as the projector makes them, until there are ROWS or FILL_SECONDS are over; the size is a figure.
Every one of the twenty questions is asked ASKED times, and every query of every dashboard once for
each of RANGES that ends with the history, over the same path as over HTTP, on two threads.
"""

import json
import statistics
import time
from collections.abc import Callable
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
from tests.benchmarks._measured import Measured
from tests.benchmarks._results import (
    NEW_YEAR_MS,
    SERIES,
    VALUES,
    latency_block,
    run_events,
    run_id_of,
)
from tests.integration.dashboard_queries import dashboards, queries

ROWS = 100_000_000
FILL_SECONDS = 200
SECONDS_PER_RUN = 600
SECONDS_PER_BLOCK = 200
PROJECTED_EVENTS = 10_000
POLLED = 5_000  # records that the projector polls at once
ASKED = 3
RANGES = {"15_minutes": 900, "6_hours": 6 * 3600, "30_days": 30 * 86_400}  # seconds


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Project, fill, ask."""
    engine = ChdbEngine(StoreSettings(data=scratch, query_threads=2))
    try:
        engine.execute(ddl_statements())
        rate = _project(engine)
        say(f"projected {rate:,.0f} rows/s of latency counts, with their sums per minute")
        engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
        engine.execute(["TRUNCATE TABLE tidegauge.latency_minutes"])
        rows = _fill(engine, say)
        milliseconds = _ask(engine, say)
        panels = _look(engine, say, NEW_YEAR_MS + rows // len(SERIES) // VALUES * 1000)
    finally:
        engine.close()
    figures = {f"store_{name}_ms": value for name, value in milliseconds.items()}
    slowest = max(milliseconds.values())
    head = {"store_projected_rows_per_second": rate, "store_history_rows": float(rows)}
    return Measured(head | {"store_slowest_question_ms": slowest} | panels | figures)


def _project(engine: ChdbEngine) -> float:
    """Rows per second of `results_latency`, from encoded records to both tables."""
    table = TABLES[catalogue.LATENCY]
    records = [
        Record(table.topic, 0, offset, value) for offset, value in enumerate(_encoded(table))
    ]
    rows, began = 0, time.perf_counter()
    for start in range(0, len(records), POLLED):
        batch = translate(table, records[start : start + POLLED], "bench")
        for block in blocks(table, batch.rows, StoreSettings().batch_rows):
            _insert(engine, table, block)
            rows += block.num_rows
    return rows / (time.perf_counter() - began)


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


def _fill(engine: ChdbEngine, say: Callable[[str], None]) -> int:
    """Latencies until there are enough, and everything else of the same runs."""
    latency = TABLES[catalogue.LATENCY]
    rows, second, deadline = 0, 0, time.monotonic() + FILL_SECONDS
    while rows < ROWS and time.monotonic() < deadline:
        block = latency_block(second, SECONDS_PER_BLOCK, SECONDS_PER_RUN)
        _insert(engine, latency, block)
        rows += block.num_rows
        second += SECONDS_PER_BLOCK
    runs = -(-second // SECONDS_PER_RUN)
    say(f"filled {rows:,} rows of latency counts: {runs} runs of {SECONDS_PER_RUN} s")
    for number in range(runs):
        _fill_run(engine, number)
    return rows


def _fill_run(engine: ChdbEngine, number: int) -> None:
    """Everything but latencies, of the first 20 seconds of a run."""
    start_ms = NEW_YEAR_MS + number * SECONDS_PER_RUN * 1000
    events = list(run_events(number, 20, start_ms))
    for topic, table in TABLES.items():
        encoded = [codec.encode(table.record, event) for name, event in events if name == topic]
        records = [Record(topic, 0, number * 100_000 + n, value) for n, value in enumerate(encoded)]
        for block in blocks(table, translate(table, records, "bench").rows, 500_000):
            engine.insert(table.name, block)


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
    """Milliseconds of the slowest query of any dashboard, per range of time that ends then."""

    def ask(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(engine.answer(Query(sql, "JSON")).data)["data"]
        return found

    slowest = {}
    for name, seconds in RANGES.items():
        when, took = TimeRange(end_ms - 1000 * seconds, end_ms), {}
        for dashboard in dashboards():
            for asked in queries(dashboard, when, ask):
                began = time.perf_counter()
                ask(asked.sql)
                place = f"{asked.dashboard}: {asked.name}"
                took[place] = max(took.get(place, 0.0), 1000 * (time.perf_counter() - began))
        place = max(took, key=lambda each: took[each])
        over = sum(each > 1000 for each in took.values())
        text = f"{len(took)} queries of dashboards over {name.replace('_', ' ')}: {over} over 1 s, "
        say(f"{text}the slowest {took[place]:.0f} ms ({place})")
        slowest[f"store_slowest_panel_{name}_ms"] = took[place]
    return slowest
