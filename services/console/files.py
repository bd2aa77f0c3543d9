"""Output files named on the command line: those of an earlier command are removed before anything
can fail, they are checked before the work and written after it."""

import json
import os
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from schemas.report import Report
from schemas.validation_errors import DefinitionError
from services.console.report.ci import benchmark, junit, junit_error, markdown

_JUNIT: Final = "--junit"
_OF_REPORT: Final = ("--report", "--markdown", _JUNIT, "--benchmark")
OUTPUTS: Final = {
    "run": _OF_REPORT,
    "watch": _OF_REPORT,
    "report": ("--html", _JUNIT),
    "sql": ("--output",),
    "bench": ("--json",),
}
"""By verb, the options that name a file to write."""
_UNFINISHED: Final = "The command did not finish: it was stopped, or it still runs."
_UNDONE: Final = "The command could not be executed; its output has the reason."


def begin_files(arguments: Sequence[str]) -> Path | None:
    """Remove the files that a command is to write, so that those of an earlier command never pass
    for its own, also if it is killed or its options are wrong. JUnit's gets a test case with an
    error instead; returns its path. Raises DefinitionError if the command also reads one."""
    verb = next((argument for argument in arguments if argument in OUTPUTS), None)
    if verb is None or {"-h", "--help"} & {*arguments}:
        return None
    named = _named(OUTPUTS[verb], arguments)
    for option, path in named.items():
        if sum(_is_same(path, value) for value in _values(arguments)) > 1:
            raise DefinitionError(f"{option} {path}: the command names this file twice.")
    remove_files(named.values())
    if (result := named.get(_JUNIT)) is not None:
        tell_unfinished(result, _UNFINISHED)
    return result


def tell_unfinished(path: Path | None, reason: str = _UNDONE) -> None:
    """Write a JUnit file with one error: why there is no result."""
    if path is not None and (path.is_file() or not path.exists()):
        with suppress(OSError):  # a file that cannot be written is refused by check_file
            path.write_bytes(junit_error(reason))


def _named(options: Sequence[str], arguments: Sequence[str]) -> dict[str, Path]:
    """The files that some options name, although the other arguments may be wrong."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in options:
        parser.add_argument(option, type=Path)
    try:
        result, _ = parser.parse_known_args(list(arguments))
    except (ArgumentError, SystemExit):
        return {}
    given = {option: getattr(result, option.removeprefix("--")) for option in options}
    return {option: path for option, path in given.items() if path is not None}


def _values(arguments: Sequence[str]) -> list[str]:
    """Every word of a command that may be a file."""
    words = [
        argument.partition("=")[2] if argument.startswith("--") else argument
        for argument in arguments
    ]
    return [part for word in words for part in word.split(",") if part]


def _is_same(path: Path, word: str) -> bool:
    try:
        return path.resolve() == Path(word).resolve()
    except (OSError, ValueError, RuntimeError):
        return False


def remove_files(paths: Iterable[Path]) -> None:
    """Remove regular files; one that cannot be removed is emptied."""
    for path in paths:
        with suppress(OSError):
            real = path.resolve()
            if not real.is_file():  # such as /dev/stdout
                continue
            try:
                real.unlink()
            except OSError:
                real.write_bytes(b"")


def check_file(option: str, path: Path | None) -> None:
    """Raises DefinitionError if a file named by an option cannot be written; None is accepted."""
    if path is None:
        return
    folder = path.absolute().parent
    if os.path.isdir(path):  # unlike pathlib's, false without permission
        raise DefinitionError(f"{option} {path}: that is a folder.")
    if not os.path.isdir(folder):
        raise DefinitionError(f"{option} {path}: there is no folder {folder}.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise DefinitionError(f"{option} {path}: it cannot be written.")


def write_file(option: str, path: Path, data: bytes) -> None:
    """Write the file; its access rights stay as they are. Raises DefinitionError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise DefinitionError(f"{option} {path}: {error.strerror}.") from error


def report_files(
    options: Namespace,
) -> tuple[tuple[str, Path | None, Callable[[Report], bytes]], ...]:
    """Files that a report is written to: option, path or None, and the writer."""
    return (
        ("--report", options.report, _as_json),
        ("--markdown", options.markdown, lambda report: markdown(report).encode()),
        ("--junit", options.junit, junit),
        ("--benchmark", options.benchmark, benchmark),
    )


def _as_json(report: Report) -> bytes:
    return (json.dumps(report.as_json(), indent=2) + "\n").encode()
