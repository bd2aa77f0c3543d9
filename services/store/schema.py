"""Applies the DDL, table settings and retention to an engine.

Rows expire by whole parts, so up to a month late. These may expire: latency counts per second,
single pairs, latencies by slice, progress reports, samples of resources that belong to no run,
scraped metrics, and dead letters. Everything else never expires, among it the latency counts per
minute. The report of an old run lacks its per-second parts and the lag of the stages.
"""

from collections.abc import Iterator, Mapping

from services.store.ddl import ddl_statements
from services.store.engine import Engine
from services.store.settings import StoreSettings
from services.store.tables import DATABASE

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


def bring_up(engine: Engine, settings: StoreSettings) -> None:
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
