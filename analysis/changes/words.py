"""Changes as they are published, and in sentences. Pure."""

from typing import Any, TypedDict

from analysis.described import plain

METRICS = {
    "middle_ms": ("typical latency (mean of the middle half)", "ms"),
    "p99_ms": ("99th percentile of latency", "ms"),
    "sustainable_rate_per_second": ("sustainable rate", "records/s"),
}


class Level(TypedDict):
    """The values of some runs."""

    median: float
    low: float
    high: float
    runs: int


class ChangeDetail(TypedDict):
    """Detail of the conclusion `change_point`. change: relative; None if it began at 0."""

    workload: str
    pipeline: str
    stage: str
    metric: str
    last_run_before: str
    first_run_after: str
    before: Level
    after: Level
    change: float | None
    worse: bool
    p_value: float
    likely_causes: list[str]


def change_sentence(change: dict[str, Any]) -> str:
    """`join of spark-realtime, latency at 400/s: the sustainable rate fell from …`."""
    before, after = change["before"]["median"], change["after"]["median"]
    metric, unit = METRICS[change["metric"]]
    by = "" if change["change"] is None else f" ({change['change']:+.0%})"
    verb = "rose" if after > before else "fell"
    causes = "likely causes:" if change["likely_causes"] else "no recorded setting changed."
    return (
        f"{change['stage']} of {change['pipeline']}, {change['workload']}: the "
        f"{metric} {verb} from {plain(before)} to {plain(after)} {unit}{by} with run "
        f"{change['first_run_after']} ({change['before']['runs']} runs before, "
        f"{change['after']['runs']} since); {causes}"
    )
