"""Whether the counts of every second of a run are still there, from ClickHouse.

They expire after `keep_latency_days`; the sums per minute stay. What only seconds tell is unknown
then, and must not be told as if nothing had happened.
"""

from services.runtime.clickhouse import query


def seconds_expired(url: str, run_id: str) -> bool:
    """Whether seconds of a run, some or all, have expired. Raises QueryError."""
    # The store writes a batch into the seconds first, so that in this order they never lack any.
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
