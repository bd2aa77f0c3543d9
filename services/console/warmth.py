"""Whether a run was steady, for its report. Pure."""

from typing import Any

Report = dict[str, Any]
FIELDS = ("seconds", "until_steady", "moving", "unknown")
SHOWN = 3


def warm_up_of(conclusion: dict[str, Any]) -> dict[str, Any] | None:
    """Duration of the warm-up and figures that were not steady while the run was measured, from the
    detail of the conclusion; None for runs of versions without this check."""
    found = conclusion.get("warm_up")
    if not found:
        return None
    empty: dict[str, Any] = {"seconds": None, "until_steady": False, "moving": [], "unknown": ""}
    return {name: found.get(name, empty[name]) for name in FIELDS}


def warm_up_sentence(report: Report) -> str:
    """Whether a run was steady while it was measured, and which figures were not; empty if not
    checked."""
    warm_up = report.get("warm_up")
    if not warm_up:
        return ""
    after = f"after {warm_up['seconds']} s of warm-up"
    if report["steady"]:
        return f"Steady in the measured phase, {after}."
    if report["steady"] is None:
        return f"Steadiness unknown: {warm_up['unknown']}." if warm_up["unknown"] else ""
    moving = warm_up["moving"]
    more = f"; and {len(moving) - SHOWN} more" if len(moving) > SHOWN else ""
    longer = "for longer (--warm-up S)" if warm_up["until_steady"] else "with --warm-up auto"
    return (
        f"NOT STEADY in the measured phase, {after}; still changing: "
        f"{'; '.join(moving[:SHOWN])}{more}. Warm up {longer}."
    )
