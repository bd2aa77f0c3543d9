"""Output files named on the command line: checked before the work, written after it."""

import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.console.ci import benchmark, junit
from services.console.page.markdown import markdown
from services.runtime.definitions import DefinitionError


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
) -> tuple[tuple[str, Path | None, Callable[[Any], bytes]], ...]:
    """Files that a report is written to: option, path or None, and the writer."""
    return (
        ("--report", options.report, lambda report: (json.dumps(report, indent=2) + "\n").encode()),
        ("--markdown", options.markdown, lambda report: markdown(report).encode()),
        ("--junit", options.junit, junit),
        ("--benchmark", options.benchmark, benchmark),
    )
