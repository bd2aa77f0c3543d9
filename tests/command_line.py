"""The command line without a process of its own."""

from collections.abc import Sequence
from typing import Any

import click
from click.testing import CliRunner, Result
from rich.console import Console

from services.console.arguments import PROGRAM, ConsoleSession
from services.console.verbs import tidegauge
from services.runtime.settings import ServiceSettings


def parsed(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The verb of a command, and its options by name. Raises click.UsageError."""
    context = tidegauge.make_context(PROGRAM, [*words])
    verb = words[len(words) - len(context.args) - 1]
    return verb, tidegauge.commands[verb].make_context(verb, context.args, parent=context).params


def noted(words: Sequence[str]) -> dict[str, object]:
    """The options of all verbs that a command gives, before or after its verb."""
    context = tidegauge.make_context(PROGRAM, [*words])
    verb = words[len(words) - len(context.args) - 1]
    return {**tidegauge.commands[verb].make_context(verb, context.args, parent=context).meta}


def carried_out(
    words: Sequence[str],
    settings: ServiceSettings | None = None,
    console: Console | None = None,
) -> Result:
    """The result of a command with these settings, in this process. Raises what the verb raises;
    a mistake in its options is exit code 2."""
    session = ConsoleSession(settings or ServiceSettings(), console or Console())
    done = CliRunner().invoke(tidegauge, [*words], obj=session, prog_name=PROGRAM)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def options_of(command: click.Command) -> set[str]:
    """Names of the options that a function gets."""
    return {each.name for each in command.params if each.expose_value and each.name}
