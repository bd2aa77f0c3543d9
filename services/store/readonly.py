"""What may be asked over HTTP, beyond what the engine's `readonly = 1` already refuses.

`readonly = 1` refuses everything that writes and every table function that reads from elsewhere.
It lets pass `INTO OUTFILE`, which the embedded engine would write itself, the function `file()`
(also by its bare name: `arrayMap(file, …)`) and the embedded engine's `Python()`. Those are looked
for in the text as the engine itself formats it, where no comment, escape or heredoc can hide them.
Users, grants and quotas are not this module's business.
"""

import re
from typing import Final

ALLOWED: Final = ("SELECT", "WITH", "SHOW", "DESCRIBE", "EXISTS", "EXPLAIN")
REFUSED_WORDS: Final = ("file", "python", "outfile")

_STRING = re.compile(r"'(?:\\.|[^'\\])*'", re.DOTALL)
_FIRST_WORD = re.compile(r"[\s(]*([A-Za-z]+)")
_REFUSED = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(REFUSED_WORDS)})(?![A-Za-z0-9_])", re.I)
_FORMAT = re.compile(r"\bFORMAT ([A-Za-z0-9]+)(?: SETTINGS .*)?$", re.DOTALL)


def refusal(formatted: str) -> str | None:
    """Why a query is refused, in one sentence, or None. formatted: the engine's own formatting."""
    first = _FIRST_WORD.match(formatted)
    word = first[1].upper() if first else ""
    if word not in ALLOWED:
        return f"Only {', '.join(ALLOWED)} can be run here, not {word or 'this'}."
    found = _REFUSED.search(_STRING.sub("''", formatted))
    return f"The name {found[1]} cannot be used here, not even as an alias." if found else None


def format_clause(formatted: str) -> str | None:
    """Output format that a query itself names in its FORMAT clause, or None."""
    found = _FORMAT.search(_STRING.sub("''", formatted))
    return found[1] if found else None


def quoted(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"
