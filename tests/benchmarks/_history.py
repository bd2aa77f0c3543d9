"""A long history of runs in the store's tables, made by the engine itself.

`filled(engine, rows)` makes RUNS runs over DAYS days. Their latencies are rows that follow from
their number; everything else is copied from the first run, which the caller has projected. Sums per
minute are made of the rows as the projector would.
"""

from collections.abc import Callable, Iterator
from typing import Final

from schemas.protocol import DEFINITIONS
from services.store.chdb_engine import ChdbEngine
from services.store.rollups import LATENCY_KEY, PLACE_KEY
from services.store.tables import DATABASE, TABLES
from tests.benchmarks._results import NEW_YEAR_MS, PIPELINES, SERIES, VALUES
from tests.traffic import STAGES

RUNS: Final = 1_000
DAYS: Final = 30
BETWEEN_S: Final = DAYS * 86_400 // RUNS
RUNS_AT_ONCE: Final = 20
OFFSETS_OF_A_RUN: Final = 1_000_000_000
COPIED: Final = (
    "results_throughput",
    "results_verdicts",
    "results_generator",
    "results_pipeline",
    "results_resources",
)


def seconds_per_run(rows: int) -> int:
    """How long runs are so that there are at least so many rows of latency counts."""
    return -(-rows // (RUNS * len(SERIES) * VALUES))


def fill_latencies(engine: ChdbEngine, rows: int, say: Callable[[str], None]) -> int:
    """Make the rows, and their sums; the number of rows."""
    seconds = seconds_per_run(rows)
    for first in range(0, RUNS, RUNS_AT_ONCE):
        engine.execute([_latencies(first, seconds), _minutes(first)])
    made = RUNS * seconds * len(SERIES) * VALUES
    say(f"filled {made:,} rows of latency counts: {RUNS} runs of {seconds} s in {DAYS} days")
    return made


def copy_runs(engine: ChdbEngine) -> None:
    """Give every run what the first one has in the tables of COPIED."""
    engine.execute(_copies(name) for name in COPIED)


def _latencies(first: int, seconds: int) -> str:
    """Rows of RUNS_AT_ONCE runs: of each second, series and value one, in the order of the key."""
    per_series = seconds * VALUES
    count = RUNS_AT_ONCE * len(SERIES) * per_series
    stages, definitions = (_texts(names) for names in (STAGES, DEFINITIONS))
    series = f"intDiv(number, {per_series}) % {len(SERIES)}"
    return f"""
        INSERT INTO {DATABASE}.results_latency
        WITH
            {first} + intDiv(number, {per_series * len(SERIES)}) AS run,
            {series} AS series,
            intDiv(series, {len(DEFINITIONS)}) % {len(STAGES)} AS place,
            number % {VALUES} AS value,
            fromUnixTimestamp64Milli({NEW_YEAR_MS} + 1000 * toInt64(
                run * {BETWEEN_S} + intDiv(number, {VALUES}) % {seconds}
            ), 'UTC') AS at
        SELECT
            concat('2026-', leftPad(toString(run), 6, '0')) AS run_id,
            at + toIntervalMillisecond(900) AS time,
            'evaluator' AS producer,
            {_texts(PIPELINES)}[1 + intDiv(series, {len(DEFINITIONS) * len(STAGES)})] AS pipeline,
            {stages}[1 + place] AS stage,
            {definitions}[1 + series % {len(DEFINITIONS)}] AS definition,
            'measure' AS phase,
            at AS second,
            40 * (1 + place) + 3 * value + cityHash64(number) % 3 AS latency_ms,
            1 + cityHash64(number, 1) % 49 AS count,
            'results.latency' AS _topic,
            0 AS _partition,
            run * {OFFSETS_OF_A_RUN} + intDiv(number, {VALUES}) AS _offset
        FROM numbers({count})
    """


def _minutes(first: int) -> str:
    """The sums of these runs."""
    keys = {"minute": "toStartOfMinute(second)"}
    names = (*LATENCY_KEY, *PLACE_KEY)
    chosen = ", ".join(f"{keys.get(name, 'l.' + name)} AS {name}" for name in names)
    low, high = (_run_id(number) for number in (first, first + RUNS_AT_ONCE - 1))
    return f"""
        INSERT INTO {DATABASE}.latency_minutes ({", ".join(names)}, count, _offset)
        SELECT {chosen}, sum(l.count) AS count, max(l._offset) AS _offset
        FROM {DATABASE}.results_latency AS l
        WHERE l.run_id BETWEEN '{low}' AND '{high}'
        GROUP BY ALL
    """


def _copies(table: str) -> str:
    """Rows of the first run as those of all others, as much later as these are."""
    schema = next(one for one in TABLES.values() if one.name == table)
    columns = list(schema.columns.names)
    later = f"toIntervalSecond(n.number * {BETWEEN_S})"
    changed = {name: f"t.{name} + {later}" for name in schema.times}
    changed["run_id"] = "concat('2026-', leftPad(toString(n.number), 6, '0'))"
    changed["_offset"] = f"t._offset + n.number * {OFFSETS_OF_A_RUN}"
    chosen = ", ".join(f"{changed.get(name, 't.' + name)} AS {name}" for name in columns)
    return f"""
        INSERT INTO {DATABASE}.{table} ({", ".join(columns)})
        SELECT {chosen}
        FROM {DATABASE}.{table} AS t
        CROSS JOIN numbers(1, {RUNS - 1}) AS n
        WHERE t.run_id = '{_run_id(0)}'
    """


def _run_id(number: int) -> str:
    return f"2026-{number:06d}"


def _texts(names: Iterator[str] | tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"
