"""Attribution in the report of a run: late seconds, room for the pipeline, and the floor."""

from typing import Any

from schemas.protocol import MACHINE, floor_run_id
from services.runtime.clickhouse import query

Report = dict[str, Any]
FLOOR = ("min", "p50", "p90", "p95", "p99", "p999", "max", "mean")


def taken_from(detail: dict[str, Any]) -> Report:
    """`disturbed`, `late`, `room` and `heap` of a report, removed from the detail of a conclusion;
    None and empty for runs concluded before these existed."""
    return {
        "disturbed": detail.pop("disturbed", None),
        "late": detail.pop("late", {}),
        "room": detail.pop("room", {}),
        "heap": detail.pop("heap", {}),
    }


def attributed_sentence(report: Report) -> str:
    """The cause of late seconds, whether the run was disturbed, which pipelines their heap limited,
    and whether the machine was saturated; empty if not known."""
    return str((report.get("late") or {}).get("said") or "")


def floor_of(url: str, run_id: str) -> dict[str, Any] | None:
    """Latency of a plain copy before a run, milliseconds; None if it was not measured, or its own
    run was not valid."""
    rows = query(
        url,
        "SELECT * FROM tidegauge.latency_summary"
        " WHERE run_id = {run_id:String} AND phase = 'measure' AND definition = 'latest'"
        " AND run_id IN"
        " (SELECT run_id FROM tidegauge.runs WHERE run_id = {run_id:String} AND valid) LIMIT 1",
        run_id=floor_run_id(run_id),
    )
    if not rows:
        return None
    (row,) = rows
    return {"count": row["count"]} | {name: row[f"{name}_ms"] for name in FLOOR}


def floor_sentence(report: Report) -> str:
    """The latency of Tidegauge itself; empty if it was not to be measured."""
    floor = report.get("floor")
    if not floor:
        of_floor = floor_run_id(report["run_id"])
        text = f"Floor: unknown; the run {of_floor} is not valid or did not take place."
        return text if report.get("floor_s") else ""
    return (
        f"Floor: a plain copy took p50 {floor['p50']}, p95 {floor['p95']}, p99 {floor['p99']}, "
        f"max {floor['max']} ms, just before this run on the same stack."
    )


def attributed_lines(report: Report) -> list[tuple[str, str]]:
    """Both sentences, if known, each with its terminal style."""
    lines = [
        (floor_sentence(report), ""),
        (attributed_sentence(report), "yellow" if report.get("disturbed") else ""),
    ]
    return [line for line in lines if line[0]]


def waiting_of(report: Report, part: str) -> str:
    """Share of the time in which a part was runnable that it waited for a core; of the machine,
    share of all time in which any task did. Empty if not known."""
    figure = "cpu_pressure_share" if part == MACHINE else "waiting_share"
    share = (report.get("room") or {}).get(part, {}).get(figure)
    return "" if share is None else f"{share:.0%}"
