"""Error messages about external data, for users."""

import difflib
from collections.abc import Sequence

from pydantic import ValidationError


class DefinitionError(ValueError):
    """A workload, pipeline, suite, domain or engine is unknown or its file is invalid; the text is
    one sentence."""


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """The sentence for an unknown name, with the known ones."""
    close = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no {what} {name[:80]!r}; there are: {', '.join(known)}.{hint}"


def first_mistake(error: ValidationError, whole: str = "", within: str = "") -> str:
    """The first error, without a full stop: the field and what was allowed.

    whole: name of the object, used if it is invalid as a whole; within: the field that contains it,
    which then comes first.
    """
    first = error.errors()[0]
    above = (within,) if within else ()
    field = ".".join(str(part) for part in (*above, *first["loc"])) or whole
    return f"{field}: {first['msg']}" if field else first["msg"]
