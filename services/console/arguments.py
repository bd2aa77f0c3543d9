"""What the verbs of the command line share: their class, types of options, exit codes.

A verb is a function in `verbs/` with its options, help and examples. It imports what it runs where
it runs it, so that help and the completion of a shell wait for click alone.
"""

import json
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rich.console import Console

    from services.runtime.settings import ServiceSettings

PROGRAM: Final = "tidegauge"
VARIABLE: Final = "_TIDEGAUGE_COMPLETE"  # how a completion script calls the program
EXIT_FAILED: Final = 1
EXIT_THRESHOLD: Final = 3
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_PIPE_CLOSED: Final = 128 + signal.SIGPIPE
MAX_WIDTH: Final = 120  # of help, on a terminal as wide
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@dataclass(frozen=True)
class ConsoleSession:
    """What a verb works with. A test passes its own as `obj`."""

    settings: "ServiceSettings"
    console: "Console"


def open_session(context: click.Context) -> ConsoleSession:
    """The settings and the terminal as the options say, and this process made ready for work."""
    from deploy.local.state import UMASK
    from services.console.terminal import Terminal
    from services.definitions.engines import make_folders_absolute
    from services.runtime.settings import ServiceSettings, load_settings

    os.umask(UMASK)
    if "data" in context.meta:
        os.environ["TIDEGAUGE_DATA"] = str(context.meta["data"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        is_nohup = number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
        if not is_nohup:
            signal.signal(number, _interrupt)
    make_folders_absolute()
    settings = load_settings(ServiceSettings)
    return ConsoleSession(
        settings, Terminal("quiet" in context.meta, "no_color" not in context.meta)
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note(context: click.Context, option: click.Parameter, value: object) -> None:
    """Keep a value for `open_session`; one after the verb replaces that before it."""
    if value:
        context.meta[option.name or ""] = value


COMMON: Final = tuple(
    click.Option(names, help=text, expose_value=False, callback=_note, **more)
    for names, text, more in (
        (["--data"], "folder for state", {"metavar": "DIR", "type": click.Path(path_type=Path)}),
        (["-q", "--quiet"], "print results and errors only, no progress", {"is_flag": True}),
        (["--no-color"], "print without colours, as with NO_COLOR set", {"is_flag": True}),
    )
)
"""Options of all verbs, which may stand before the verb or after it."""
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}


class Verb(click.Command):
    """A verb. examples: whole commands, each with its purpose. details: text of the help that is
    looked up when it is shown."""

    common: Sequence[click.Option] = COMMON

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[tuple[str, str]],
        details: Callable[[], str] = str,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self.params += self.common
        self.examples, self.details = examples, details

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option in place of a value, which click would take for the value."""
        options = {
            name: each
            for each in self.params
            if isinstance(each, click.Option)
            for name in each.opts
        }
        for word, following in pairwise(args):
            option = options.get(word)
            needs_value = option and not option.is_flag and option.flag_value is None
            if needs_value and following.partition("=")[0] in options:
                raise click.BadOptionUsage(word, f"Option {word!r} requires an argument.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Carry it out, and exit with its code."""
        ctx.exit(super().invoke(ctx) or 0)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The docstring, and the details."""
        super().format_help_text(ctx, formatter)
        if details := self.details():
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(details)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are to be copied."""
        with formatter.section("Examples"):
            for command, why in self.examples:
                formatter.write(f"  # {why}\n  {command}\n")


class VerbGroup(click.Group):
    """All verbs, in the order in which they were added."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that is called; an error suggests the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            for near in get_close_matches(args[0], self.commands, 1):
                error.message += f" Did you mean {near!r}?"
            raise


def verb(
    *examples: tuple[str, str], cls: type[Verb] = Verb, **more: Any
) -> Callable[[Callable[..., Any]], Verb]:
    """A function as a verb: its docstring is the help; it returns the exit code, None for 0."""
    return click.command(cls=cls, context_settings=CONTEXT, examples=examples, **more)


def with_session(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Calls the function with the session as its first argument."""

    @wraps(function)
    def call(**options: Any) -> int | None:
        context = click.get_current_context()
        return function(context.obj or open_session(context), **options)

    return call


def names_of(kind: str) -> Completer:
    """Completion by names of this kind; by files if none begins like this."""

    def complete(_context: object, _parameter: object, start: str) -> list[CompletionItem]:
        names = [CompletionItem(name) for name in _names(kind) if name.startswith(start)]
        return names or [CompletionItem(start, type="file")]

    return complete


def _names(kind: str) -> Iterable[str]:
    if kind == "format":
        from services.console.listing import FORMATS

        return FORMATS
    from services.console.checks import benchmark_names
    from services.definitions.domains import domain_names
    from services.definitions.engines import load_engines
    from services.definitions.pipelines import PIPELINES_DIR, names
    from services.definitions.workloads import STUDIES_DIR, SUITES_DIR, WORKLOADS_DIR

    of_kind: dict[str, Callable[[], Iterable[str]]] = {
        "benchmark": benchmark_names,
        "domain": domain_names,
        "engine": load_engines,
        "pipeline": lambda: names(PIPELINES_DIR),
        "study": lambda: names(STUDIES_DIR),
        "suite": lambda: names(SUITES_DIR),
        "workload": lambda: names(WORKLOADS_DIR),
    }
    return of_kind[kind]()


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output, one item per line for legibility."""
    print(json.dumps(value, indent=2))
