"""Error messages about external data, for users: the one place that puts pydantic's into words."""

import difflib
import re
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MOST_LISTED: Final = 20
_ONE_OF = re.compile(r"\^\(([\w|]+)\)\$")
_CHARACTERS = re.compile(r"\^\[([^]]+)\]\[([^]]+)\](?:\{0,(\d+)\}|\*)\$")
_IN_CLUSTER = re.compile(r"\^\(.+:\)\?(\[.+)\$")
_OPTIONAL = re.compile(r"\^\((.+)\)\?\$")
# The patterns of other forms. tests/unit/schemas/test_validation_errors.py finds one without words.
_FORMS: Final = {
    r"^https?://[^\s]+$": "must be an address: https://host[:port] or http://host[:port]",
    r"^https?://[^\s/]+$": "must be an address: https://host[:port] or http://host[:port]",
    r"^https?://\S+$": "must be an address: https://host[:port] or http://host[:port]",
    r"^[a-z][a-z0-9_]{0,40}_s$": "must be a name that ends with _s",
    r"^3\.\d+$": "must be a version of Python, such as 3.13",
    r"^#[0-9a-f]{6}$": "must be a colour, such as #1f77b4",
    r"^([0-9]{1,19}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$": "must be a number or a GUID",
    r"^[\t !#-~]$": 'must be one character of ASCII, and not "',
    r"^[0-9a-f]{16}$": "must be 16 hexadecimal digits",
    r"^[^:]+:[0-9]{1,5}$": "must be host:port",
    r"^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$": "must be COLUMN or INPUT.COLUMN",
}
_WORDS: Final = {
    "missing": "is missing",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must be valid UTF-8",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "path_type": "must be a path",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "dataclass_type": "must be a table",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "recursion_loop": "contains itself",
    "invalid_key": "must have text as keys",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must have as {discriminator} one of {expected_tags}",
    "union_tag_not_found": "must have the field {discriminator}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "json_type": "must be JSON text",
    "json_invalid": "is not valid JSON: {error}",
    "none_required": "must be left out",
}
_OTHERWISE: Final = "has a form that is not allowed here"
# What pydantic adds to the location of an error in a union, or of a key: not a field.
_LABEL = re.compile(r"[\w-]+\[.*\]|\[key\]|constrained-\w+|str|int|float|bool|none")


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


def listed(names: Sequence[str]) -> str:
    """The first MOST_LISTED names, for a sentence that says what there is."""
    return ", ".join(names[:MOST_LISTED]) + (", …" if len(names) > MOST_LISTED else "")


def first_mistake(error: ValidationError, whole: str = "", within: str = "") -> str:
    """The first error, without a full stop: the field and what was allowed.

    whole: name of the object, used if it is invalid as a whole; within: the field that contains it,
    which then comes first.
    """
    place = _place(error.errors()[0], of_a_load="tagged-union[Constant," in error.title)
    field = ".".join((within, *place) if within else place) or whole
    return f"{field}: {first_sentence(error)}" if field else first_sentence(error)


def first_sentence(error: ValidationError) -> str:
    """The first error in words, without its field. A value that fits none of several kinds is told
    what each of them allows."""
    first, *others = error.errors()
    if not _is_in_union(first):
        return sentence(first)
    same = [other for other in others if _is_in_union(other) and _place(other) == _place(first)]
    sentences = dict.fromkeys(
        sentence(each) for each in (first, *same) if not _allows_only_empty(each)
    )
    start, *more = sentences or {sentence(first): None}
    return " or ".join((start, *(each.removeprefix("It must be ") for each in more)))


def sentence(error: ErrorDetails) -> str:
    """One of pydantic's errors in words, without its field."""
    kind, given = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return "There is no such field"
    if kind in ("value_error", "assertion_error"):
        return str(given["error"]) or f"It {_OTHERWISE}"
    if kind == "string_pattern_mismatch":
        return allowed(given["pattern"]) or f"It {_OTHERWISE}"
    shown = {name: f"{each:.15g}" if _is_number(each) else each for name, each in given.items()}
    words = _WORDS.get(kind, _OTHERWISE).format(**shown)
    return "It " + words.replace(" 1 characters", " 1 character").replace(" 1 entries", " 1 entry")


def allowed(pattern: str) -> str:
    """The sentence for the texts that match a pattern; empty for a pattern without words."""
    if match := _OPTIONAL.fullmatch(pattern):
        return allowed(f"^{match[1]}$")
    if match := _IN_CLUSTER.fullmatch(pattern):
        return f"{allowed(f'^{match[1]}$')}, after CLUSTER: if it is in another one"
    if match := _ONE_OF.fullmatch(pattern):
        *names, last = match[1].split("|")
        return f"Allowed: {', '.join(names)} or {last}"
    if pattern in _FORMS:
        return f"It {_FORMS[pattern]}"
    if match := _CHARACTERS.fullmatch(pattern):
        start, rest = (" ".join(re.findall(r".-.|.", group)) for group in match.groups()[:2])
        many = f"1 to {int(match[3]) + 1} characters" if match[3] else "characters"
        return f"Allowed: {many} of {rest}, the first of {start}"
    return ""


def _place(error: ErrorDetails, *, of_a_load: bool = False) -> tuple[str, ...]:
    """The field of an error, as in the file. pydantic adds the shape of a load after `load`, and
    after each of its parts. of_a_load: what was validated is a load itself."""
    place = [str(part) for part in error["loc"] if not _LABEL.fullmatch(str(part))]
    at = 0 if of_a_load else place.index("load") + 1 if "load" in place else len(place)
    while at < len(place):
        del place[at]
        at = at + 2 if place[at : at + 1] == ["parts"] else len(place)
    return tuple(place)


def _is_in_union(error: ErrorDetails) -> bool:
    return any(_LABEL.fullmatch(str(part)) for part in error["loc"])


def _allows_only_empty(error: ErrorDetails) -> bool:
    return error.get("ctx", {}).get("expected") == "''"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
