"""The verb `changes`: where the history of a figure changed, in sentences."""

from typing import Any

from rich.console import Console

from analysis.changes.words import change_sentence


def show_changes(console: Console, changes: list[dict[str, Any]]) -> None:
    """One paragraph each."""
    if not changes:
        console.print("No change point in the history of any workload.")
    for change in changes:
        console.print(change_sentence(change), soft_wrap=True)
        for cause in change["likely_causes"]:
            console.print(f"    {cause}", soft_wrap=True, markup=False)
