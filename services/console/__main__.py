"""The `tidegauge` command: sends requests through Kafka, reads results from ClickHouse.

./tidegauge run            # start what is not running, do one run, print a report
./tidegauge --help
"""

import os
import sys
from collections.abc import Callable

import click
from click.shell_completion import shell_complete

from services.console.arguments import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, PROGRAM, VARIABLE
from services.console.files import begin_files, tell_unfinished
from services.console.verbs import tidegauge

EXIT_MISTAKE = 2
OURS = ("", "schemas", "services", "analysis", "deploy", "domains")


def main(arguments: list[str], prepare: Callable[[], None] = lambda: None) -> int:
    """Execute one command; returns the exit code. prepare: is done before it, once the files of an
    earlier command are removed."""
    if VARIABLE in os.environ:
        return shell_complete(tidegauge, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])
    try:
        code = _code(arguments, prepare)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # such as `… | head`, which closes the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        print("tidegauge: interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED


def _code(arguments: list[str], prepare: Callable[[], None]) -> int:
    """Execute the command, and tell why if it cannot be done; returns the exit code."""
    junit = None
    try:
        junit = begin_files(tidegauge.commands, arguments)
        prepare()
        return _carry_out(arguments)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else PROGRAM
        is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)
        _tell([error.format_message() if is_help else f"{path}: {error.format_message()}"])
        tell_unfinished(junit)
    except BrokenPipeError:
        raise
    except Exception as error:
        lines = _reason(error)
        _tell(lines)
        tell_unfinished(junit, lines[-1].removeprefix("tidegauge: "))
    return EXIT_MISTAKE


def _carry_out(arguments: list[str]) -> int:
    try:
        with tidegauge.make_context(PROGRAM, [*arguments]) as context:
            tidegauge.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return 0


def _tell(lines: list[str]) -> None:
    from services.console.terminal import harmless

    print(*map(harmless, lines), sep="\n", file=sys.stderr)


def _reason(error: Exception) -> list[str]:
    """The lines that explain why a command could not be done. Raises the error if it is a
    defect."""
    from confluent_kafka import KafkaException

    from deploy.local.install import InstallError
    from deploy.local.java import JavaMissingError
    from deploy.local.stack import StackError
    from schemas.validation_errors import DefinitionError
    from services.console.run_command import RunError
    from services.runtime.clickhouse import QueryError
    from services.runtime.kafka import KafkaUnavailableError, said_by_kafka
    from services.runtime.secret_files import SecretFileError

    if isinstance(error, OSError):  # such as a full disk, or a folder of another user
        where = f"{error.filename}: " if error.filename else ""
        return [f"tidegauge: {where}{error.strerror or error}."]
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing not in OURS:
        needed = f"This needs {missing}, a package of the stack"
        return [f"tidegauge: {needed}: pip install 'tidegauge[run]'"]
    if isinstance(error, StackError):
        return [*(f"  {line}" for line in error.log_tail), f"tidegauge: {error}"]
    if isinstance(error, InstallError):
        return [f"tidegauge: {error}."]
    known = (DefinitionError, KafkaUnavailableError, QueryError, RunError)
    if isinstance(error, (*known, JavaMissingError, SecretFileError)):
        return [f"tidegauge: {error}"]
    if isinstance(error, KafkaException):
        return [f"tidegauge: Kafka does not do what the command needs: {said_by_kafka(error)}."]
    raise error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
