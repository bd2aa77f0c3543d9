"""Checks in ClickHouse whether the per-second counts of a run have expired.

They expire after `keep_latency_days`; the sums per minute stay. Figures that need seconds are then
unknown and must not be reported as zero.
"""

from services.runtime.clickhouse import query


def seconds_expired(url: str, run_id: str) -> bool:
    """Whether some or all seconds of a run have expired. Raises QueryError."""
    # The store writes seconds before minutes, so in this order seconds never lag behind.
    of_minutes = _outputs(url, "latency_minutes", run_id)
    return _outputs(url, "results_latency", run_id) < of_minutes


def _outputs(url: str, table: str, run_id: str) -> int:
    rows = query(
        url,
        f"SELECT sum(r.count) AS outputs FROM tidegauge.{table} AS r"
        " WHERE run_id = {run_id:String}",
        run_id=run_id,
    )
    return int(rows[0]["outputs"])
