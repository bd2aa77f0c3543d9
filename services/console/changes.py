"""The verb `changes`: where the history of a figure changed, in sentences."""

from typing import Any

from rich.console import Console

METRICS = {
    "p50_ms": ("median latency", "ms"),
    "p99_ms": ("99th percentile of latency", "ms"),
    "sustainable_rate_per_second": ("sustainable rate", "records/s"),
}


def show_changes(console: Console, changes: list[dict[str, Any]]) -> None:
    """One paragraph each."""
    if not changes:
        console.print("No change point in the history of any workload.")
    for change in changes:
        console.print(change_sentence(change), soft_wrap=True)
        for cause in change["likely_causes"]:
            console.print(f"    {cause}", soft_wrap=True, markup=False)


def change_sentence(change: dict[str, Any]) -> str:
    """`join of spark-realtime, latency at 400/s: the median latency rose from 5 to 8 ms …`."""
    before, after = change["before"]["median"], change["after"]["median"]
    metric, unit = METRICS[change["metric"]]
    by = "" if change["change"] is None else f" ({change['change']:+.0%})"
    verb = "rose" if after > before else "fell"
    causes = (
        "likely causes:" if change["likely_causes"] else "nothing that is stored changed there."
    )
    return (
        f"{change['stage']} of {change['pipeline']}, {change['workload']}: the "
        f"{metric} {verb} from {before:g} to {after:g} {unit}{by} with run "
        f"{change['first_run_after']} ({change['before']['runs']} runs before, "
        f"{change['after']['runs']} since); {causes}"
    )
