"""Settings of the store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr

from services.runtime.hosts import LOOPBACK
from services.runtime.secret_files import given_secret
from services.runtime.settings import ServiceSettings
from services.store.dashboards.queries import DASHBOARDS_DIR
from services.store.engine import EngineError

# Bounds for parsing a query. services/store/policy/sql_tokens.py bounds the text before that. The
# tree of a query grows where it refers to an alias or a WITH clause repeatedly. max_query_size also
# bounds the tree as JSON.
PARSING: Final = {
    "max_query_size": 8 * 1024 * 1024,
    "max_parser_depth": 1000,
    "max_parser_backtracks": 1_000_000,
    "max_ast_depth": 1000,
    "max_ast_elements": 50_000,
    "max_expanded_ast_elements": 100_000,
}
MAX_BLOCK_ROWS: Final = 65_409  # ClickHouse's default
MEMORY: Final = "max_memory_usage"
LEAST_SECONDS: Final = 0.001


class StoreSettings(ServiceSettings):
    """Settings of the store, in addition to those of every service.

    batch_seconds, batch_rows, batch_bytes: bounds of one insert, which has at least one record. A
    conclusion is inserted earlier.
    insert_retry_seconds: how long a failing insert is retried before the process ends.
    discover_seconds: interval of looking for new partitions. query_*: bounds of one query over
    HTTP; a request may ask for less.
    query_slots: concurrent queries; others wait up to query_wait_seconds. The last slot is reserved
    for clients with a password, so there are at least two.
    offline: only answer SQL from what was projected before, without Kafka.
    anonymous_reads: whether a client without a password is the reader; if unset, only on a loopback
    address. allowed_hosts: names under which clients reach the store, in addition to loopback and
    `host`; `*` for any. keep_*_days: minimum retention of rows; 0 keeps them forever. See
    services/store/engines/schema.py.
    dashboards_dir: folder of the Grafana dashboard files that `/dashboards/` shows.
    clickhouse_url: a server to use instead of the embedded engine. clickhouse_user may create
    databases, tables and users there; no users if clickhouse_manage_reader is off.
    """

    offline: bool = False
    anonymous_reads: bool | None = None
    allowed_hosts: tuple[str, ...] = ()

    batch_seconds: float = Field(3, gt=0, le=60)
    batch_rows: int = Field(200_000, ge=1, le=500_000)
    batch_bytes: int = Field(32 * 1024 * 1024, ge=1024, le=256 * 1024 * 1024)
    insert_retry_seconds: float = Field(60, ge=0, le=3600)
    discover_seconds: float = Field(10, gt=0, le=3600)
    query_max_seconds: float = Field(30, gt=0, le=3600)
    query_max_rows: int = Field(1_000_000, ge=1)
    query_max_result_bytes: int = Field(64 * 1024 * 1024, ge=1024)
    query_max_memory_bytes: int = Field(1024 * 1024 * 1024, ge=16 * 1024 * 1024)
    query_threads: int = Field(1, ge=1, le=256)
    query_slots: int = Field(4, ge=1, le=64)
    query_wait_seconds: float = Field(5, ge=0, le=60)

    dashboards_dir: Path = DASHBOARDS_DIR

    clickhouse_url: str = Field("", pattern=r"^(https?://\S+)?$")
    clickhouse_user: str = "default"
    clickhouse_password: SecretStr = SecretStr("")
    clickhouse_password_file: Path | None = None
    clickhouse_manage_reader: bool = True

    keep_latency_days: int = Field(90, ge=0, le=36_500)
    keep_progress_days: int = Field(90, ge=0, le=36_500)
    keep_idle_resources_days: int = Field(30, ge=0, le=36_500)
    keep_dead_letter_days: int = Field(90, ge=0, le=36_500)
    keep_pairs_days: int = Field(30, ge=0, le=36_500)
    keep_slices_days: int = Field(90, ge=0, le=36_500)
    keep_metrics_days: int = Field(30, ge=0, le=36_500)

    @property
    def database_dir(self) -> Path:
        """Folder of the embedded engine, opened by one process only."""
        return self.data / "clickhouse"

    @property
    def database_lock(self) -> Path:
        """File that the owner of that folder locks."""
        folder = self.database_dir.resolve()
        return folder.parent / f"{folder.name}.lock"

    @property
    def scratch_dir(self) -> Path:
        """Folder for the embedded engine's temporary files; emptied at every start."""
        return self.database_dir.resolve() / "scratch"

    def clickhouse_secret(self) -> str:
        """The password for the server, read from its file if one is configured.

        Raises SecretFileError.
        """
        if self.clickhouse_password_file is not None:
            return given_secret(self.clickhouse_password_file)
        return self.clickhouse_password.get_secret_value()

    @property
    def reads_are_anonymous(self) -> bool:
        """Whether clients can read without a password."""
        if self.anonymous_reads is None:
            return self.host in LOOPBACK
        return self.anonymous_reads


def bounds(settings: StoreSettings, asked: Mapping[str, str]) -> dict[str, float | str]:
    """ClickHouse settings that bound one query. A request can only tighten them.

    With `result_overflow_mode = break` a smaller max_result_rows becomes the setting `limit`, which
    cuts exactly there, so that the store's own bound still throws. Raises EngineError for a value
    that is not a number.
    """
    limits: dict[str, float | str] = {
        "max_execution_time": settings.query_max_seconds,
        "max_result_rows": settings.query_max_rows,
        "max_result_bytes": settings.query_max_result_bytes,
        MEMORY: settings.query_max_memory_bytes,
        "max_threads": settings.query_threads,
        "max_block_size": MAX_BLOCK_ROWS,
        "result_overflow_mode": "throw",
        "timeout_overflow_mode": "throw",
        **PARSING,
    }
    result = {name: _tighter(asked.get(name), limit) for name, limit in limits.items()}
    is_sooner = result["max_execution_time"] != limits["max_execution_time"]
    if asked.get("timeout_overflow_mode") == "break" and is_sooner:
        result["timeout_overflow_mode"] = "break"
    if asked.get("result_overflow_mode") == "break":
        result |= _broken(result, limits, asked.get("limit", "0"))
    return result


def _broken(
    result: Mapping[str, float | str], limits: Mapping[str, float | str], cut: str
) -> dict[str, float | str]:
    """Bounds with which the first rows of a longer result are returned, where the request has set a
    bound. cut: its own setting `limit`."""
    broken: dict[str, float | str] = {}
    rows, bytes_ = result["max_result_rows"], result["max_result_bytes"]
    if rows != limits["max_result_rows"]:
        broken = {"limit": _tighter(cut, rows), "max_result_rows": limits["max_result_rows"]}
    if bytes_ != limits["max_result_bytes"]:
        broken["result_overflow_mode"] = "break"
    return broken


def admin_bounds(settings: StoreSettings, asked: Mapping[str, str]) -> dict[str, float | str]:
    """ClickHouse settings that bound one query of the admin: memory, and those that the request
    asks for, unchanged. It can only tighten those of memory and parsing.

    Raises EngineError for a value that is not a number.
    """
    fixed = (MEMORY, *PARSING)
    return {
        name: limit if name in fixed else asked[name]
        for name, limit in bounds(settings, asked).items()
        if name == MEMORY or name in asked
    }


def _tighter(asked: str | None, limit: float | str) -> float | str:
    """The smaller of two bounds; 0 means no bound, which is larger than any."""
    if asked is None or isinstance(limit, str):
        return limit
    try:
        wanted = float(asked)
    except ValueError as error:
        raise EngineError(f"Code: 72. DB::Exception: {asked!r} is not a number.") from error
    if not 0 < wanted < limit:
        return limit
    # A fraction would be truncated to 0, which means no bound.
    return max(int(wanted), 1) if isinstance(limit, int) else max(wanted, LEAST_SECONDS)
