"""Output files named on the command line: those of an earlier command are removed before anything
can fail, they are checked before the work and written after it."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from schemas.report import Report
    from services.console.series import RunOptions
    from services.console.watching import WatchOptions

_JUNIT: Final = "--junit"
_FORMATS: Final = {".json": "JSON", ".md": "Markdown", ".xml": "JUnit XML", ".html": "HTML"}
_UNFINISHED: Final = "The command did not finish: it was stopped, or it still runs."
_UNDONE: Final = "The command could not be executed; its output has the reason."


class FileToWrite(click.Path):
    """The type of an option that names a file to write. Its metavar, such as FILE.json, has the
    suffix of the format."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, _ctx: object
    ) -> Path:
        """Its path. Raises DefinitionError if it cannot be written."""
        path = Path(value)
        check_file(param.opts[0] if param else "", path)
        return path


def begin_files(verbs: Mapping[str, click.Command], arguments: Sequence[str]) -> Path | None:
    """Remove the files that a command is to write, so that those of an earlier command never pass
    for its own, also if it is killed or its options are wrong. JUnit's gets a test case with an
    error instead; returns its path. Raises DefinitionError for a file that the command also reads,
    or whose name promises another format: that one is kept."""
    words = [word for before, word in pairwise(["", *arguments]) if before != "--data"]
    verb = next((verbs[word] for word in words if word in verbs), None)
    if verb is None or {"-h", "--help"} & {*arguments}:
        return None
    suffixes = {
        each.opts[0]: Path(each.metavar or "").suffix
        for each in verb.params
        if isinstance(each.type, FileToWrite)
    }
    named = _named(suffixes, arguments)
    objections = {
        str(path): objection
        for option, path in named
        if (objection := _objection(option, path, suffixes[option], arguments))
    }
    begun = [
        (option, path)
        for option, path in named
        if not any(_is_same(path, other) for other in objections)
    ]
    remove_files(path for _, path in begun)
    objection = next(iter(objections.values()), "")
    result = next((path for option, path in reversed(begun) if option == _JUNIT), None)
    tell_unfinished(result, objection or _UNFINISHED)
    if objection:
        raise _refusal(objection)
    return result


def _refusal(text: str) -> Exception:
    from schemas.validation_errors import DefinitionError

    return DefinitionError(text)


def _objection(option: str, path: Path, suffix: str, arguments: Sequence[str]) -> str:
    """Why a file is not written: its name promises another format than that with this suffix, of
    which an empty one accepts every name, or the command names it twice; else empty."""
    given = path.suffix.lower()
    if suffix and given in _FORMATS and given != suffix:
        return (
            f"{option} {path}: it writes {_FORMATS[suffix]}, so the name of the file may not end "
            f"in {given}."
        )
    if sum(_is_same(path, value) for value in _values(arguments)) > 1:
        return f"{option} {path}: the command names this file twice."
    return ""


def tell_unfinished(path: Path | None, reason: str = _UNDONE) -> None:
    """Write a JUnit file with one error: why there is no result."""
    if path is not None and (path.is_file() or not path.exists()):
        from services.console.report.ci import junit_error

        with suppress(OSError):  # a file that cannot be written is refused by check_file
            path.write_bytes(junit_error(reason))


def _named(options: Collection[str], arguments: Sequence[str]) -> list[tuple[str, Path]]:
    """The options that name files, and these, although the other arguments may be wrong: an option
    before another one lacks its value."""
    words = [
        word
        for word, after in pairwise([*arguments, ""])
        if word not in options or not after.startswith("--")
    ]
    kind = click.Path(path_type=Path)
    params = [click.Option([option], type=kind, multiple=True) for option in options]
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    reader = click.Command("files", settings, params=[*params], add_help_option=False)
    context = reader.make_context("files", words, resilient_parsing=True)
    return [
        (option, path)
        for option in options
        for path in context.params[option.removeprefix("--")] or ()
    ]


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
        raise _refusal(f"{option} {path}: that is a folder.")
    if not os.path.isdir(folder):
        raise _refusal(f"{option} {path}: there is no folder {folder}.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise _refusal(f"{option} {path}: it cannot be written.")


def write_file(option: str, path: Path, data: bytes) -> None:
    """Write the file; its access rights stay as they are. Raises DefinitionError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _refusal(f"{option} {path}: {error.strerror}.") from error


def report_files(
    options: "RunOptions | WatchOptions",
) -> "tuple[tuple[str, Path | None, Callable[[Report], bytes]], ...]":
    """Files that a report is written to: option, path or None, and the writer."""
    from services.console.report.ci import benchmark, junit, markdown

    return (
        ("--report", options.report, _as_json),
        ("--markdown", options.markdown, lambda report: markdown(report).encode()),
        (_JUNIT, options.junit, junit),
        ("--benchmark", options.benchmark, benchmark),
    )


def _as_json(report: "Report") -> bytes:
    return (json.dumps(report.as_json(), indent=2) + "\n").encode()
