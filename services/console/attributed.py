"""Whose the figures of a run are, in its report: late seconds, room, and the floor below them."""

from typing import Any

from schemas.protocol import floor_run_id
from services.runtime.clickhouse import query

Report = dict[str, Any]
FLOOR = ("p50", "p90", "p95", "p99", "max")


def taken_from(detail: dict[str, Any]) -> Report:
    """`disturbed`, `late` and `room` of a report, taken out of the detail of a conclusion; None and
    empty where the run was concluded before it said so."""
    return {
        "disturbed": detail.pop("disturbed", None),
        "late": detail.pop("late", {}),
        "room": detail.pop("room", {}),
    }


def attributed_sentence(report: Report) -> str:
    """Whose the late seconds are, whether others disturbed the run, and whether the machine was
    saturated; empty where that is not known."""
    return str((report.get("late") or {}).get("said") or "")


def floor_of(url: str, run_id: str) -> dict[str, Any] | None:
    """What a plain copy took before a run, milliseconds; None where it was not measured."""
    rows = query(
        url,
        "SELECT * FROM tidegauge.latency_summary"
        " WHERE run_id = {run_id:String} AND phase = 'measure' AND definition = 'latest' LIMIT 1",
        run_id=floor_run_id(run_id),
    )
    if not rows:
        return None
    (row,) = rows
    return {"count": row["count"]} | {name: row[f"{name}_ms"] for name in FLOOR}


def floor_sentence(report: Report) -> str:
    """What the instrument itself takes; empty where that was not measured."""
    floor = report.get("floor")
    if not floor:
        return ""
    return (
        f"Floor: a plain copy took p50 {floor['p50']}, p95 {floor['p95']}, p99 {floor['p99']} ms, "
        f"at most {floor['max']}, just before, on the same stack."
    )


def attributed_lines(report: Report) -> list[tuple[str, str]]:
    """Both, where they are known, each with its style on a terminal."""
    lines = [
        (floor_sentence(report), ""),
        (attributed_sentence(report), "yellow" if report.get("disturbed") else ""),
    ]
    return [line for line in lines if line[0]]


def waiting_of(report: Report, part: str) -> str:
    """Of the time in which a part wanted to run, the share in which it waited for a core; empty
    where that is not known."""
    share = (report.get("room") or {}).get(part, {}).get("waiting_share")
    return "" if share is None else f"{share:.0%}"
