"""The verb `changes`: change points in the history of a figure, in sentences."""

from typing import Any

from rich.console import Console

from analysis.changes.words import change_sentence

SHOWN_CAUSES = 2


def show_changes(console: Console, changes: list[dict[str, Any]], explains: bool = False) -> None:
    """One paragraph per change. explains: also print both levels, the confidence, and all that
    changed."""
    if not changes:
        console.print("No change point in the history of any workload.")
    for change in changes:
        console.print(change_sentence(change), soft_wrap=True)
        causes = change["likely_causes"]
        for line in (*levels(change), *causes) if explains else causes[:SHOWN_CAUSES]:
            console.print(f"    {line}", soft_wrap=True)
        if len(causes) > SHOWN_CAUSES and not explains:
            more = len(causes) - SHOWN_CAUSES
            console.print(f"    and {more} more: ./tidegauge changes --explain", soft_wrap=True)


def levels(change: dict[str, Any]) -> list[str]:
    """`before: median 5.1, 4.9 to 5.6 in 12 runs`, the same for after, and the confidence."""
    found = [
        f"{side}: median {at['median']:.4g}, {at['low']:.4g} to {at['high']:.4g}"
        f" in {at['runs']} runs"
        for side, at in (("before", change["before"]), ("since", change["after"]))
    ]
    adjusted = "Latencies are adjusted for the pace of the machine and the time of day."
    odds = f"Of shuffled histories {change['p_value']:.2%} show as great a change."
    return [*found, adjusted, odds]
