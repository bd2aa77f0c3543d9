"""Whose the late seconds of a run are and whether it had room, in its report. Pure."""

from typing import Any

Report = dict[str, Any]


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


def waiting_of(report: Report, part: str) -> str:
    """Of the time in which a part wanted to run, the share in which it waited for a core; empty
    where that is not known."""
    share = (report.get("room") or {}).get(part, {}).get("waiting_share")
    return "" if share is None else f"{share:.0%}"
