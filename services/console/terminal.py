"""The terminal: verbosity, colours and bar characters."""

from collections.abc import Sequence

from rich.console import Console

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


class Terminal(Console):
    """A console with a flag for quiet output: results and errors only.

    NO_COLOR also disables colours; rich reads it itself.
    """

    def __init__(self, is_quiet: bool = False, has_color: bool = True) -> None:
        super().__init__(highlight=False, no_color=None if has_color else True)
        self.is_quiet = is_quiet


def is_quiet(console: Console) -> bool:
    """Whether only results and errors are printed."""
    return isinstance(console, Terminal) and console.is_quiet


def redraws(console: Console) -> bool:
    """Whether the terminal can redraw its output."""
    return console.is_terminal and not console.is_dumb_terminal


def heights(values: Sequence[float], width: int, encoding: str = "utf-8") -> str:
    """The last `width` values as bar characters, from zero to the highest."""
    blocks = BLOCKS if encoding.lower().startswith("utf") else PLAIN_BLOCKS
    shown = values[-width:]
    highest = max([*shown, 1])
    return "".join(
        blocks[min(len(blocks) - 1, int(max(0, value) * len(blocks) / highest))] for value in shown
    )
