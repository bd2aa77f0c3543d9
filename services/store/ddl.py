"""The DDL in `deploy/clickhouse/`: numbered, idempotent files, applied at every start."""

import re
from collections.abc import Iterator
from pathlib import Path

from services.runtime.settings import ROOT

DDL_DIR = ROOT / "deploy" / "clickhouse"
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_END = re.compile(r";[ \t]*$", re.MULTILINE)


def split_statements(text: str) -> tuple[str, ...]:
    """Statements of one file. Whole-line `--` comments are removed; `;` at the end of a line
    separates."""
    pieces = _END.split(_COMMENT.sub("", text))
    return tuple(piece.strip() for piece in pieces if piece.strip())


def ddl_statements(directory: Path = DDL_DIR) -> Iterator[str]:
    """Every statement of the directory's `NNN_name.sql` files, in the order of their numbers."""
    for path in sorted(directory.glob("[0-9][0-9][0-9]_*.sql")):
        yield from split_statements(path.read_text())
