"""The `tidegauge` command: sends requests through Kafka, reads results from ClickHouse.

./tidegauge run            # start what is not running, do one run, print a report
./tidegauge --help
"""

import os
import signal
import sys
from argparse import Namespace
from itertools import takewhile
from pathlib import Path
from types import FrameType

from deploy.local.install import InstallError
from deploy.local.java import JavaMissingError
from deploy.local.stack import StackError
from deploy.local.state import UMASK
from schemas.validation_errors import DefinitionError
from services.console.arguments import build_parser
from services.console.checks import run_tests
from services.console.files import begin_files, tell_unfinished
from services.console.run_command import RunError
from services.console.terminal import Terminal, harmless
from services.console.verbs import VERBS
from services.console.verbs.common import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED
from services.definitions.engines import make_folders_absolute
from services.runtime.clickhouse import QueryError
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings

NOT_DONE = (
    *(DefinitionError, InstallError, KafkaUnavailableError, QueryError, RunError),
    *(JavaMissingError, SecretFileError, StackError, OSError),
)


def main(arguments: list[str]) -> int:
    """Execute one command; returns the exit code."""
    before = [*takewhile(lambda each: each.startswith("-"), arguments)]
    verb, rest = arguments[len(before) :][:1], arguments[len(before) + 1 :]
    if verb == ["test"] and rest not in (["--help"], ["-h"]):
        build_parser().parse_args([*before, *verb])
        return run_tests(rest)
    options, junit = _begun(arguments)
    if options.verb == "test":
        return run_tests(options.arguments)
    os.umask(UMASK)
    if options.data is not None:
        os.environ["TIDEGAUGE_DATA"] = str(options.data)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        is_nohup = number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
        if not is_nohup:
            signal.signal(number, _interrupt)
    try:
        make_folders_absolute()
        settings = load_settings(ServiceSettings)
        terminal = Terminal(options.quiet, not options.no_color)
        code = VERBS[options.verb](options, settings, terminal)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # such as `… | head`, which closes the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except NOT_DONE as error:
        said = [harmless(line) for line in _said(error)]
        print(*said, sep="\n", file=sys.stderr)
        tell_unfinished(junit, said[-1].removeprefix("tidegauge: "))
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("tidegauge: interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED


def _begun(arguments: list[str]) -> tuple[Namespace, Path | None]:
    """The options, and the JUnit file that says so if the command is not done. Exits if they are
    wrong."""
    try:
        junit = begin_files(arguments)
    except DefinitionError as error:
        print(f"tidegauge: {harmless(str(error))}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error
    try:
        return build_parser().parse_args(arguments), junit
    except SystemExit as ended:
        if ended.code:
            tell_unfinished(junit)
        raise


def _said(error: Exception) -> list[str]:
    """The lines that explain why a command could not be done."""
    if isinstance(error, OSError):  # such as a full disk, or a folder of another user
        where = f"{error.filename}: " if error.filename else ""
        return [f"tidegauge: {where}{error.strerror or error}."]
    lines = [f"  {line}" for line in error.log_tail] if isinstance(error, StackError) else []
    end = "." if isinstance(error, InstallError) else ""
    return [*lines, f"tidegauge: {error}{end}"]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
