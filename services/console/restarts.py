"""What it cost that a pipeline was killed and started again, from ClickHouse.

An output of the measure phase that came again after the pipeline was found dead is a duplicate that
the restart made. One that came late is late because of it when its latest input had come before the
queries ran again: it had to wait for them. Whatever is late beyond that has other reasons.
"""

from typing import Any, TypedDict

from services.console.clickhouse import query

FOR_EVER_MS = 2**53


class Restart(TypedDict):
    """down_ms: when the pipeline was found dead, epoch milliseconds; outage_s: for how long none of
    its queries ran, None if they never ran again; late, duplicate: outputs that it made so."""

    down_ms: int
    outage_s: float | None
    late: int
    duplicate: int


def restarts_of(url: str, run_id: str, deadline_ms: int) -> dict[str, list[Restart]]:
    """The restarts of each pipeline that had any, in order."""
    rows = query(
        url,
        "SELECT pipeline, event, toUnixTimestamp64Milli(time) AS time_ms"
        " FROM tidegauge.results_lifecycle WHERE run_id = {run_id:String}"
        " AND event IN ('pipeline_down', 'pipeline_up') ORDER BY time",
        run_id=run_id,
    )
    found: dict[str, list[Restart]] = {}
    for row in rows:
        restarts, time_ms = found.setdefault(row["pipeline"], []), int(row["time_ms"])
        if row["event"] == "pipeline_down":
            restarts.append({"down_ms": time_ms, "outage_s": None, "late": 0, "duplicate": 0})
        elif restarts:
            restarts[-1]["outage_s"] = (time_ms - restarts[-1]["down_ms"]) / 1000
    for pipeline, restarts in found.items():
        ends_ms = [*(restart["down_ms"] for restart in restarts[1:]), FOR_EVER_MS]
        for restart, end_ms in zip(restarts, ends_ms, strict=True):
            which = {"run_id": run_id, "pipeline": pipeline, "end": str(end_ms)}
            restart["late"] = _late(url, restart, deadline_ms, which)
            restart["duplicate"] = _duplicates(url, restart, which)
    return found


OF_THE_RESTART = (
    " WHERE run_id = {run_id:String} AND pipeline = {pipeline:String} AND phase = 'measure'"
    " AND toUnixTimestamp64Milli(second) + 1000 > {down:Int64}"
    " AND toUnixTimestamp64Milli(second) + 1000 <= {end:Int64}"
)


def _late(url: str, restart: Restart, deadline_ms: int, which: dict[str, str]) -> int:
    outage_s = restart["outage_s"]
    up_ms = FOR_EVER_MS if outage_s is None else restart["down_ms"] + round(1000 * outage_s)
    rows: list[dict[str, Any]] = query(
        url,
        "SELECT toInt64(sum(r.count)) AS total FROM tidegauge.results_latency AS r"
        + OF_THE_RESTART
        + " AND definition = 'latest' AND latency_ms > {deadline:Int64}"
        " AND toUnixTimestamp64Milli(second) - latency_ms <= {up:Int64}",
        down=str(restart["down_ms"]),
        deadline=str(deadline_ms),
        up=str(up_ms),
        **which,
    )
    return int(rows[0]["total"])


def _duplicates(url: str, restart: Restart, which: dict[str, str]) -> int:
    rows: list[dict[str, Any]] = query(
        url,
        "SELECT sum(duplicate) AS total FROM tidegauge.results_verdicts" + OF_THE_RESTART,
        down=str(restart["down_ms"]),
        **which,
    )
    return int(rows[0]["total"])
