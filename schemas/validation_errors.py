"""Error messages about external data, for users."""

import difflib
import re
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_ONE_OF = re.compile(r"\^\(([\w|]+)\)\$")
_WORDS = {
    "missing": "It is missing",
    "int_parsing": "It must be a whole number",
    "int_type": "It must be a whole number",
    "int_from_float": "It must be a whole number",
    "float_parsing": "It must be a number",
    "float_type": "It must be a number",
    "greater_than_equal": "It must be at least {ge}",
    "greater_than": "It must be greater than {gt}",
    "less_than_equal": "It must be at most {le}",
    "less_than": "It must be less than {lt}",
}
_BOUNDS = ("ge", "gt", "le", "lt")
_CHARACTERS = re.compile(r"\^\[([^]]+)\]\[([^]]+)\]\{0,(\d+)\}\$")


class DefinitionError(ValueError):
    """A workload, pipeline, suite, domain or engine is unknown or its file is invalid; the text is
    one sentence."""


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """The sentence for an unknown name, with the known ones."""
    if not known:
        return f"There is no {what} {name[:80]!r}; there are none."
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
    return f"{field}: {sentence(first)}" if field else sentence(first)


def sentence(error: ErrorDetails) -> str:
    """One of pydantic's errors in words, without its field."""
    kind = error["type"]
    if kind == "extra_forbidden":
        return "There is no such field"
    if kind == "string_pattern_mismatch":
        return _allowed(error["ctx"]["pattern"]) or error["msg"]
    if kind in _WORDS:
        bounds = {
            name: f"{one:.15g}" for name, one in error.get("ctx", {}).items() if name in _BOUNDS
        }
        return _WORDS[kind].format(**bounds)
    return error["msg"].removeprefix("Value error, ")


def _allowed(pattern: str) -> str:
    """The texts that match a pattern of one of two common forms; empty for others."""
    if found := _ONE_OF.fullmatch(pattern):
        *names, last = found[1].split("|")
        return f"Allowed: {', '.join(names)} or {last}"
    if found := _CHARACTERS.fullmatch(pattern):
        start, rest = (" ".join(re.findall(r".-.|.", one)) for one in found.groups()[:2])
        return f"Allowed: 1 to {int(found[3]) + 1} characters of {rest}, the first of {start}"
    return ""
