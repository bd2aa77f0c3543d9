"""The terminal: how loud it is, whether it has colours, and drawings of characters."""

from collections.abc import Sequence

from rich.console import Console

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


class Terminal(Console):
    """A console that knows whether progress is wanted, or results and errors only.

    Without colours where NO_COLOR is set, too, which rich looks at itself.
    """

    def __init__(self, is_quiet: bool = False, has_color: bool = True) -> None:
        super().__init__(highlight=False, no_color=None if has_color else True)
        self.is_quiet = is_quiet


def is_quiet(console: Console) -> bool:
    """Whether nothing but results is wanted."""
    return isinstance(console, Terminal) and console.is_quiet


def redraws(console: Console) -> bool:
    """Whether it can draw over what it has drawn."""
    return console.is_terminal and not console.is_dumb_terminal


def heights(values: Sequence[float], width: int, encoding: str = "utf-8") -> str:
    """The last `width` values as heights, from nothing to the highest."""
    blocks = BLOCKS if encoding.lower().startswith("utf") else PLAIN_BLOCKS
    shown = values[-width:]
    highest = max([*shown, 1])
    return "".join(
        blocks[min(len(blocks) - 1, int(max(0, value) * len(blocks) / highest))] for value in shown
    )
