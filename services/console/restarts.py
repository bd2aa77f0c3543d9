"""The effects of a kill and restart of a pipeline, from ClickHouse.

An output of the measure phase that is repeated after the pipeline was found dead is a duplicate
caused by the restart. A late output is attributed to the restart until its stage has caught up:
until the first second after the queries were running again that has outputs, none of them late.
Later ones have other causes.
"""

from collections.abc import Iterable
from typing import Any, TypedDict

from services.runtime.clickhouse import query

FOR_EVER_MS = 2**53


class Restart(TypedDict):
    """down_ms: when the pipeline was found dead, epoch milliseconds; outage_s: how long none of its
    queries ran, None if they never ran again; late, duplicate: outputs attributed to the
    restart."""

    down_ms: int
    outage_s: float | None
    late: int
    duplicate: int


def restarts_of(url: str, run_id: str) -> dict[str, list[Restart]]:
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
            restart["late"] = _late(url, restart, which)
            restart["duplicate"] = _duplicates(url, restart, which)
    return found


OF_THE_RESTART = (
    " WHERE run_id = {run_id:String} AND pipeline = {pipeline:String} AND phase = 'measure'"
    " AND toUnixTimestamp64Milli(second) + 1000 > {down:Int64}"
    " AND toUnixTimestamp64Milli(second) + 1000 <= {end:Int64}"
)


def _late(url: str, restart: Restart, which: dict[str, str]) -> int:
    rows = query(
        url,
        "SELECT stage, toUnixTimestamp64Milli(second) AS second_ms, toInt64(sum(v.late)) AS late"
        " FROM tidegauge.results_verdicts AS v"
        + OF_THE_RESTART
        + " GROUP BY stage, second HAVING sum(exact + wrong + v.late) > 0 ORDER BY stage, second",
        down=str(restart["down_ms"]),
        **which,
    )
    outage_s = restart["outage_s"]
    up_ms = FOR_EVER_MS if outage_s is None else restart["down_ms"] + round(1000 * outage_s)
    return late_until_caught_up(rows, up_ms)


def late_until_caught_up(rows: Iterable[dict[str, Any]], up_ms: int) -> int:
    """Late outputs of each stage until its first second from `up_ms` on without any.

    rows: `stage`, `second_ms` and `late`, sorted in this order, for seconds with outputs.
    """
    total, caught_up = 0, set()
    for row in rows:
        stage, late = row["stage"], int(row["late"])
        if not late and int(row["second_ms"]) >= up_ms:
            caught_up.add(stage)
        if stage not in caught_up:
            total += late
    return total


def _duplicates(url: str, restart: Restart, which: dict[str, str]) -> int:
    rows = query(
        url,
        "SELECT sum(duplicate) AS total FROM tidegauge.results_verdicts" + OF_THE_RESTART,
        down=str(restart["down_ms"]),
        **which,
    )
    return int(rows[0]["total"])
