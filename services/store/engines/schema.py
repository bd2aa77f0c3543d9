"""The DDL, table settings and retention, and how they are applied to an engine.

Rows expire by whole parts, so up to a month late. These may expire: latency counts per second,
single pairs, latencies by slice, progress reports, samples of resources that belong to no run,
scraped metrics, and dead letters. Everything else never expires, among it the latency counts per
minute. The report of an old run lacks its per-second parts and the lag of the stages.

The DDL is applied at every start, and idempotent: that of the raw tables follows from the schemas
of their records (`services/store/tables.py`), all else is in the numbered files of
`deploy/clickhouse/`. In these, `{levels}` stands for the levels of all percentiles, and a line with
`{percentile}` for one line for each of them (`of_percentiles`); a line with `{raw_table}` for one
for each raw table without a rollup.

A rollup is a table with sums of a raw table, which remain when its rows expire. It is projected
from the bus like its raw table, by the same process and from the same blocks, but has its own
position. Every row contains the greatest offset that went into it, so a restart continues after it,
whichever of the two inserts was the last. A materialized view cannot guarantee that: ClickHouse
inserts into a table and into its views one after another. A rollup has no partitions, so a block of
one month is one atomic insert there too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from schemas import catalogue
from schemas.percentiles import LEVELS, shown
from services.runtime.settings import ROOT
from services.store.engine import SqlEngine
from services.store.settings import StoreSettings
from services.store.tables import DATABASE, TABLES

DDL_DIR = ROOT / "deploy" / "clickhouse"
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_END = re.compile(r";[ \t]*$", re.MULTILINE)
TABLE_SETTINGS = (
    # By default ClickHouse merges every few small inserts with all existing rows of a table of some
    # megabytes. With a higher base it merges inserts with each other first (decision 0408).
    "merge_selector_base = 20",
    # From 100 old parts on it removes them in up to 128 threads, which then keep memory (decision
    # 0409).
    "concurrent_part_removal_threshold = 100000",
    # Merged parts take memory until they are removed, by default after eight minutes. The kernel
    # writes new files to the disk within half a minute (decision 0409).
    "old_parts_lifetime = 60",
)
LATENCY_KEY = ("run_id", "pipeline", "stage", "definition", "phase", "minute", "latency_ms")
PLACE_KEY = ("_topic", "_partition")


def split_statements(text: str) -> tuple[str, ...]:
    """Statements of one file. Whole-line `--` comments are removed; `;` at the end of a line
    separates."""
    pieces = _END.split(_COMMENT.sub("", text))
    return tuple(piece.strip() for piece in pieces if piece.strip())


def ddl_statements(directory: Path = DDL_DIR) -> Iterator[str]:
    """Every statement: the first of the directory's `NNN_name.sql` files in the order of their
    numbers, which makes the database, the raw tables, and the other files."""
    database, *others = sorted(directory.glob("[0-9][0-9][0-9]_*.sql"))
    yield from split_statements(database.read_text())
    for table in TABLES.values():
        yield from table.ddl
    for path in others:
        yield from split_statements(of_raw_tables(of_percentiles(path.read_text())))


def of_raw_tables(text: str) -> str:
    """DDL with every line with `{raw_table}` repeated for each raw table without a rollup."""
    names = [table.name for topic, table in TABLES.items() if topic not in ROLLUPS]
    lines = []
    for line in text.splitlines():
        repeated = [line.replace("{raw_table}", name) for name in names]
        lines += repeated if "{raw_table}" in line else [line]
    return "\n".join(lines)


def of_percentiles(text: str) -> str:
    """DDL with `{levels}` replaced, and every line with `{percentile}` repeated for each percentile
    of `schemas.percentiles.LEVELS`, with its name, its `{place}` among them (from 1) and its
    `{title}`."""
    lines = []
    for line in text.replace("{levels}", ", ".join(map(str, LEVELS.values()))).splitlines():
        if "{percentile}" not in line:
            lines.append(line)
            continue
        for place, name in enumerate(LEVELS, 1):
            title = f"{shown(name).removeprefix('p')}th percentile of the"
            of_line = line.replace("{percentile}", name).replace("{place}", str(place))
            lines.append(of_line.replace("{title}", "Median" if name == "p50" else title))
    return "\n".join(lines)


def bring_up(engine: SqlEngine, settings: StoreSettings) -> None:
    """Apply every required statement. Raises EngineError."""
    engine.execute(ddl_statements())
    rows = engine.rows(f"SELECT name, engine_full FROM system.tables WHERE database = '{DATABASE}'")
    defined = {str(row["name"]): str(row["engine_full"]) for row in rows}
    engine.execute(setting_statements(defined))
    engine.execute(retention_statements(settings, defined))


def setting_statements(defined: Mapping[str, str]) -> Iterator[str]:
    """Statements that give every table the TABLE_SETTINGS that it lacks.

    defined: `engine_full` of every table, as in `system.tables`.
    """
    for table, engine in defined.items():
        missing = [setting for setting in TABLE_SETTINGS if setting not in engine]
        if "MergeTree" in engine and missing:
            yield f"ALTER TABLE {DATABASE}.{table} MODIFY SETTING {', '.join(missing)}"


def retention_statements(settings: StoreSettings, defined: Mapping[str, str]) -> Iterator[str]:
    """Statements that change the tables' TTL to the configured one; none where it is unchanged.

    defined: `engine_full` of every table, as in `system.tables`.
    """
    for table, (days, condition) in _kept(settings).items():
        interval = f"toIntervalDay({days}){condition}"
        alter, has = f"ALTER TABLE {DATABASE}.{table}", " TTL " in defined[table]
        if days and interval not in defined[table]:
            whole = _by_part(condition)
            yield f"{alter} MODIFY SETTING ttl_only_drop_parts = {whole}"
            yield f"{alter} MODIFY TTL toDateTime(time) + {interval}"
        elif not days and has:
            yield f"{alter} REMOVE TTL"


def _kept(settings: StoreSettings) -> dict[str, tuple[int, str]]:
    """Retention in days, and a condition if only some rows of the table expire."""
    return {
        "results_latency": (settings.keep_latency_days, ""),
        "results_pipeline": (settings.keep_progress_days, ""),
        "results_resources": (settings.keep_idle_resources_days, " WHERE run_id = ''"),
        "dead_letter": (settings.keep_dead_letter_days, ""),
        "results_pairs": (settings.keep_pairs_days, ""),
        "results_slices": (settings.keep_slices_days, ""),
        "results_metrics": (settings.keep_metrics_days, ""),
    }


def _by_part(condition: str) -> int:
    """Whether parts are dropped as a whole, which is cheap; not if some of their rows remain."""
    return 0 if condition else 1


@dataclass(frozen=True)
class Rollup:
    """One rollup. aggregate: converts a block of the raw table's rows to the rollup's rows."""

    name: str
    aggregate: Callable[[pa.Table], pa.Table]


def latency_minutes(block: pa.Table) -> pa.Table:
    """Count of every millisecond of latency per minute of output time: sums, so still exact."""
    minute = pc.floor_temporal(block["second"], unit="minute").cast(pa.timestamp("s", tz="UTC"))
    summed = (
        block.append_column("minute", minute)
        .group_by([*LATENCY_KEY, *PLACE_KEY])
        .aggregate([("count", "sum"), ("_offset", "max")])
    )
    names = {"count_sum": "count", "_offset_max": "_offset"}
    return summed.rename_columns([names.get(name, name) for name in summed.column_names])


ROLLUPS: Mapping[str, tuple[Rollup, ...]] = MappingProxyType(
    {catalogue.LATENCY: (Rollup("latency_minutes", latency_minutes),)}
)


def fresh(block: pa.Table, done: Mapping[tuple[str, int], int]) -> pa.Table:
    """Rows of a block that a table does not have yet. done: its next offset by topic and partition.

    All rows of a block are of one topic.
    """
    topic = block["_topic"][0].as_py()
    for (name, partition), offset in done.items():
        if name == topic:
            seen = pc.and_(
                pc.equal(block["_partition"], partition), pc.less(block["_offset"], offset)
            )
            if pc.any(seen).as_py():
                block = block.filter(pc.invert(seen))
    return block
