"""The terminal: verbosity, colours, tables and bar characters."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNKNOWN_WIDTH = 160  # of a file or a pipe, so that no figure is cut
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


class Terminal(Console):
    """A console with a flag for quiet output: results and errors only. Text is printed as it is:
    brackets are no markup.

    NO_COLOR also disables colours; rich reads it itself.
    """

    def __init__(
        self, is_quiet: bool = False, has_color: bool = True, file: IO[str] | None = None
    ) -> None:
        no_color = None if has_color else True
        super().__init__(markup=False, highlight=False, no_color=no_color, file=file)
        self.is_quiet = is_quiet
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = UNKNOWN_WIDTH

    def on_broken_pipe(self) -> None:
        """Leave it to the command line; rich would exit with 1, which means an invalid run."""
        self.quiet = True
        raise BrokenPipeError


def is_quiet(console: Console) -> bool:
    """Whether only results and errors are printed."""
    return isinstance(console, Terminal) and console.is_quiet


def say_unless_quiet(console: Console, text: str) -> None:
    """Print a line of progress, unless only results and errors are printed."""
    if not is_quiet(console):
        console.print(text, soft_wrap=True)


def teller(console: Console) -> Callable[[str], None]:
    """Prints progress as dim lines, or nothing if quiet."""
    if is_quiet(console):
        return lambda _text: None
    return lambda text: console.print(text, style="dim", soft_wrap=True)


def headed(name: str, text: str, width: int = 0) -> Text:
    """A line that begins with a name in bold, at least `width` characters wide."""
    return Text.assemble((name.ljust(width), "bold"), f"  {text}")


def show_entries(console: Console, entries: Iterable[tuple[str, str]]) -> None:
    """A list of names with a text each, one line an entry, the texts one below the other."""
    entries = list(entries)
    width = max((len(name) for name, _ in entries), default=0)
    for name, text in entries:
        console.print(headed(name, text, width), soft_wrap=True)


def harmless(text: str) -> str:
    """Text of others for a terminal: without control characters, which could change its title or
    the clipboard, except line feed and tab."""
    return CONTROLS.sub("\ufffd", text)


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


def titled_table(title: str, style: str | None = "bold") -> Table:
    """A table without columns, as in reports. style: of its title; None: italic."""
    return Table(
        title=title,
        title_justify="left",
        title_style=style,
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
