"""Whether a run was steady, for its report. Pure."""

from typing import Any

Report = dict[str, Any]
FIELDS = ("seconds", "until_steady", "moving", "unknown", "of_machine")
SHOWN = 3


def warm_up_of(conclusion: dict[str, Any]) -> dict[str, Any] | None:
    """Duration of the warm-up and figures that were not steady while the run was measured, from the
    detail of the conclusion; None if it ended before."""
    found = conclusion.get("warm_up")
    return {name: found[name] for name in FIELDS} if found else None


def warm_up_sentence(report: Report) -> str:
    """Whether a run was steady while it was measured, and which figures were not; empty if not
    checked."""
    warm_up = report.get("warm_up")
    if not warm_up:
        return ""
    after = f"after {warm_up['seconds']} s of warm-up"
    if report["steady"]:
        return " ".join((f"Steady in the measured phase, {after}.", *_of_machine(warm_up)))
    if report["steady"] is None:
        return f"Steadiness unknown: {warm_up['unknown']}." if warm_up["unknown"] else ""
    moving = f"NOT STEADY in the measured phase, {after}; still changing: "
    moving += f"{_first(warm_up['moving'])}."
    longer = "for longer (--warm-up S)" if warm_up["until_steady"] else "with --warm-up auto"
    return " ".join((moving, *(_of_machine(warm_up) or [f"Warm up {longer}."])))


def _of_machine(warm_up: dict[str, Any]) -> list[str]:
    """Changes of CPU time that the machine's performance explains, in a sentence; empty without
    any."""
    changed = warm_up["of_machine"]
    if not changed:
        return []
    return [
        "The machine's performance changed, as the generator's CPU time per record shows: "
        f"{_first(changed)}."
    ]


def _first(sentences: list[str]) -> str:
    """The first SHOWN, and the number of others."""
    more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return f"{'; '.join(sentences[:SHOWN])}{more}"
