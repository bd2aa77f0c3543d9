"""Report sentences for runs of a watch, which have no load and no generator."""

from typing import Any

from analysis.thresholds import left_to_thresholds, not_exact
from services.runtime.clickhouse import query

Report = dict[str, Any]
REFUSED = "refused"
SHOWN_REASONS = 3
# What is said of records that were not judged, by kind (services/watcher/not_judged.py).
TOLD = {
    REFUSED: "could not be evaluated",
    "other_type": "not concerned",
    "removed": "missing",
}


def is_watched(request: dict[str, Any]) -> bool:
    """Whether a run belongs to a watch, given its request as JSON."""
    return "watch" in request


def watched_bounds(detail: dict[str, Any]) -> tuple[str, str] | None:
    """Begin and end of the part of a run that was watched, epoch ms, given the detail of its
    conclusion; None if unknown or empty."""
    told = detail.get("watch", {})
    from_ms, until_ms = told.get("from_ms", 0), told.get("until_ms", 0)
    return (str(from_ms), str(until_ms)) if from_ms < until_ms else None


def watched_until_ms(url: str, run_id: str) -> int:
    """End of the last second in which a record was read; 0 without one. Raises QueryError."""
    rows = query(
        url,
        "SELECT toUnixTimestamp64Milli(max(second)) + 1000 AS until_ms"
        " FROM tidegauge.results_throughput WHERE run_id = {run_id:String} HAVING count() > 0",
        run_id=run_id,
    )
    return int(rows[0]["until_ms"]) if rows else 0


def watched_input(url: str, run_id: str, seconds: float) -> dict[str, Any]:
    """The input of a report, counted from the topics. Raises QueryError."""
    rows = query(
        url,
        "SELECT sum(records) AS total FROM tidegauge.results_throughput"
        " WHERE run_id = {run_id:String} AND pipeline = ''",
        run_id=run_id,
    )
    records = int(rows[0]["total"])
    return {
        "records": records,
        "records_per_second": records / seconds if seconds else 0.0,
        "send_delay_ms": dict.fromkeys(("p50", "p99", "max")),
    }


def watched_amounts(url: str, run_id: str) -> dict[str, Any]:
    """Keys of the report of a watch. `mean_bytes`: of the values of its inputs and outputs, None
    without any; `groups`: the lag of each consumer group by topic, in records: `max`, and `last` of
    the run. Raises QueryError."""
    sizes = query(
        url,
        "SELECT if(pipeline = '', 'input', 'output') AS side, sum(t.bytes) / sum(t.records) AS mean"
        " FROM tidegauge.results_throughput AS t WHERE run_id = {run_id:String} AND records > 0"
        " GROUP BY side",
        run_id=run_id,
    )
    groups = query(
        url,
        'SELECT group_id AS "group", topic, max(records_behind) AS max,'
        " argMax(records_behind, l.time) AS last FROM tidegauge.consumer_lag AS l"
        " WHERE run_id = {run_id:String} GROUP BY group_id, topic ORDER BY group_id, topic",
        run_id=run_id,
    )
    means = dict.fromkeys(("input", "output")) | {row["side"]: row["mean"] for row in sizes}
    return {"mean_bytes": means, "groups": groups}


def watch_complaints(report: Report) -> list[str]:
    """Why the outputs of a watch's run are not good, a sentence each: verdicts other than exact
    that no threshold limits, records that could not be evaluated, or no exact output at all."""
    limited = left_to_thresholds(report["thresholds"])
    found = []
    for pipeline in report["pipelines"].values():
        for stage, cell in pipeline["stages"].items():
            bad = not_exact(cell["verdicts"], limited)
            found += [f"{stage} has {bad}."] if bad else []
            found += [] if cell["verdicts"]["exact"] else [f"{stage} has no exact output."]
    told = report["conclusion"].get("watch", {})
    if refused := told.get("refused"):
        reasons = [row["reason"] for row in told.get("not_judged", ()) if row["kind"] == REFUSED]
        why = f": {'; '.join(reasons[:SHOWN_REASONS])}" if reasons else ""
        found.append(f"{refused} records were not evaluated{why}.")
    return found


def _amounts(report: Report) -> list[str]:
    known = {side: mean for side, mean in report.get("mean_bytes", {}).items() if mean is not None}
    sizes = " and ".join(f"{mean:.0f} bytes per {side}" for side, mean in known.items())
    lags = [
        f"{one['group']} was at most {one['max']} records behind on {one['topic']}, "
        f"{one['last']} at the end."
        for one in report.get("groups", ())
    ]
    return [*([f"Values have {sizes} on average."] if sizes else []), *lags]


def watch_sentences(report: Report) -> list[str]:
    """Whose clocks the latencies of a watch are based on, and what was not counted."""
    told = report["conclusion"].get("watch")
    if told is None:
        return []
    found = [told["times"], *_negative(report), *_amounts(report)]
    shares = [share for _, share in told.get("shares", ())]
    if len(set(shares)) > 1:
        least, most = (f"one in {1 / share:g}" for share in (min(shares), max(shares)))
        found.append(
            f"Depending on rate and memory, a hash sample of {least} to {most} identities was "
            "counted; verdicts and latencies of the sample are exact."
        )
    elif told["share"] < 1:
        found.append(
            f"A hash sample of one in {1 / told['share']:g} identities was counted; verdicts and "
            "latencies of the sample are exact."
        )
    rows = told.get("not_judged", ())
    if told["refused"] and not rows:
        found.append(f"{told['refused']} records have no identity and were not evaluated.")
    return found + [_not_judged(row) for row in rows]


def _not_judged(row: dict[str, Any]) -> str:
    records = "1 record" if row["records"] == 1 else f"{row['records']} records"
    said = f"{row['topic']}: {records} {TOLD.get(row['kind'], 'not judged')}: {row['reason']}"
    if row["offset"] < 0:
        return f"{said}."
    return f"{said} (first: partition {row['partition']}, offset {row['offset']})."


def _negative(report: Report) -> list[str]:
    """How many latencies are negative, and what that means."""
    found = []
    for pipeline in report["pipelines"].values():
        for stage, cell in pipeline["stages"].items():
            latest = cell["latency_ms"].get("latest", {})
            if negative := latest.get("negative"):
                found.append(
                    f"{negative} of {latest['count']} latencies of {stage} are negative, the lowest"
                    f" {latest['min']} ms: the clocks of producers or brokers differ, or outputs"
                    " were published before their inputs."
                )
    return found


def is_unmeasured(report: Report) -> bool:
    """Whether it is a watch's run whose timestamps cannot measure latency."""
    return bool(report["conclusion"].get("watch", {}).get("unmeasured"))


def without_unmeasured(report: Report) -> Report:
    """The report of a run without latencies that its timestamps do not measure."""
    if is_unmeasured(report):
        for pipeline in report["pipelines"].values():
            for cell in pipeline["stages"].values():
                cell["latency_ms"] = {}
    return report
