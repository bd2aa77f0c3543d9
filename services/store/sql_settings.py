"""SETTINGS at the end of a query, SET and USE: taken from the text, so that they are judged and
bounded as the settings of a request are, before the engine is made read-only. Pure.

Only a list of `name = literal` at the very end of a reading statement is taken; the syntax tree
shows any other SETTINGS, which are refused there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from services.store.engine import EngineError, Query
from services.store.sql_statements import READS
from services.store.sql_tokens import Kind, TextError, Token, scan

# A map from tables to conditions, which the Grafana plugin sends for its ad-hoc filters.
FILTERS: Final = "additional_table_filters"
_ENDINGS: Final = 2  # one before FORMAT and one after it
_WRITTEN: Final = re.compile(r"\bsettings\b", re.I)
_DEPTH: Final = {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))|''", re.DOTALL)
_ESCAPED: Final = dict(zip("bfnrt0av", "\b\f\n\r\t\0\a\v", strict=True))


def lifted(query: Query, most: Mapping[str, float | str]) -> Query:
    """The query without SETTINGS at its end, which become settings of the request.

    most: bounds, which they can only tighten. Raises EngineError.
    """
    if not _WRITTEN.search(query.text):
        return query
    text, found = query.text, dict[str, str]()
    for _ending in range(_ENDINGS):
        try:
            text, settings = _without_settings(text)
        except TextError:
            return query  # is refused when it is judged
        found = settings | found
    want_tighter(found, most)
    return replace(query, text=text, settings={**query.settings, **found}) if found else query


def settings_of(text: str) -> dict[str, str] | None:
    """The settings of a SET statement, or None for another statement. Raises TextError."""
    if text.lstrip()[:3].upper() != "SET":
        return None
    tokens = whole(scan(text))
    return _assigned(tokens[1:]) if tokens and tokens[0].word == "SET" else None


def used_database(text: str) -> str | None:
    """The database of a USE statement, or None for another statement. Raises TextError."""
    if text.lstrip()[:3].upper() != "USE":
        return None
    tokens = whole(scan(text))
    if len(tokens) == 3 and tokens[1].word == "DATABASE":
        del tokens[1]
    is_name = len(tokens) == 2 and tokens[1].kind in (Kind.WORD, Kind.NAME)
    return tokens[1].text if is_name and tokens[0].word == "USE" else None


def killed_query(text: str) -> str | None:
    """The id in `KILL QUERY WHERE query_id = 'id' [SYNC|ASYNC]`, or None for another statement."""
    if text.lstrip()[:4].upper() != "KILL":
        return None
    try:
        tokens = whole(scan(text))
    except TextError:
        return None
    words = [token.text.upper() for token in tokens]
    if words[:5] != ["KILL", "QUERY", "WHERE", "QUERY_ID", "="] or len(tokens) < 6:
        return None
    return _text_of(tokens[5]) if words[6:] in ([], ["SYNC"], ["ASYNC"]) else None


def filters_of(value: str) -> dict[str, str] | None:
    """The conditions by table in a value of additional_table_filters; None if it is not such a
    map."""
    try:
        tokens = scan(value)
    except TextError:
        return None
    inner = tokens[1:-1]
    if len(tokens) < 2 or (_sign(tokens[0]), _sign(tokens[-1])) != ("{", "}"):
        return None
    found = {}
    for at in range(0, len(inner), 4):
        table, colon, condition = (*inner[at : at + 3], None, None, None)[:3]
        comma = inner[at + 3 : at + 4]
        if table is None or colon is None or condition is None or _sign(colon) != ":":
            return None
        if {table.kind, condition.kind} != {Kind.STRING} or (comma and _sign(comma[0]) != ","):
            return None
        names = _text_of(table), _text_of(condition)
        if None in names:
            return None
        found[str(names[0])] = str(names[1])
    return found


def _without_settings(text: str) -> tuple[str, dict[str, str]]:
    tokens = whole(scan(text))
    first = next((token.word for token in tokens if _sign(token) != "("), "")
    if first not in (*READS, "DESC"):
        return text, {}
    depth = 0
    for at, token in reversed(list(enumerate(tokens))):
        depth += _DEPTH.get(_sign(token), 0)
        if token.word == "SETTINGS" and depth == 0 and at > 0:
            rest, ending = tokens[at + 1 :], ""
            if len(rest) > 2 and rest[-2].word == "FORMAT" and rest[-1].kind is not Kind.STRING:
                rest, ending = rest[:-2], text[rest[-2].begin :]
            found = _assigned(rest)
            return (text[: token.begin] + ending, found) if found else (text, {})
    return text, {}


def whole(tokens: list[Token]) -> list[Token]:
    """The tokens of a statement without the semicolon at its end."""
    return tokens[:-1] if tokens and _sign(tokens[-1]) == ";" else tokens


def _sign(token: Token) -> str:
    """The sign; empty if it is none."""
    return token.text if token.kind is Kind.SIGN else ""


def _assigned(tokens: Sequence[Token]) -> dict[str, str] | None:
    """The values in `name = literal, …`; None if it is not such a list."""
    found, at = dict[str, str](), 0
    while at < len(tokens):
        name, value = tokens[at], None
        if name.kind is Kind.WORD and [_sign(each) for each in tokens[at + 1 : at + 2]] == ["="]:
            value, at = _literal(tokens, at + 2)
        if value is None:
            return None
        found[name.text] = value
        if at < len(tokens) and _sign(tokens[at]) != ",":
            return None
        at += 1
    return found if tokens and _sign(tokens[-1]) != "," else None


def _literal(tokens: Sequence[Token], at: int) -> tuple[str | None, int]:
    """The value of a literal, and where the next token is."""
    token = tokens[at] if at < len(tokens) else None
    if token is None:
        return None, at
    if _sign(token) == "{":
        end = next((i for i in range(at, len(tokens)) if _sign(tokens[i]) == "}"), at)
        written = "".join(each.text for each in tokens[at : end + 1])
        return written if filters_of(written) is not None else None, end + 1
    if _sign(token) in ("+", "-") and at + 1 < len(tokens) and tokens[at + 1].kind is Kind.NUMBER:
        return token.text + tokens[at + 1].text, at + 2
    if token.kind is Kind.NUMBER:
        return token.text, at + 1
    if token.kind is Kind.STRING:
        return _text_of(token), at + 1
    return {"TRUE": "1", "FALSE": "0"}.get(token.word), at + 1


def _text_of(token: Token) -> str | None:
    """The text that a literal in quotes means; None if it has an unusual escape."""
    if not token.text.startswith("'"):
        return None
    inner = token.text[1:-1]
    escapes = list(_ESCAPE.finditer(inner))
    if any(each[2] and each[2] not in f"\\'\"`{''.join(_ESCAPED)}" for each in escapes):
        return None
    return _ESCAPE.sub(_meant, inner)


def _meant(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[2]) if escape[2] else "'"


def want_tighter(settings: Mapping[str, str], most: Mapping[str, float | str]) -> None:
    """Raise EngineError if a setting of a text would lift one of the bounds."""
    for name, value in settings.items():
        limit = most.get(name)
        if name == "readonly" and value not in ("1", "2"):
            raise _refused(name)
        if isinstance(limit, float | int) and not _is_within(value, limit):
            raise _refused(name, f" to more than {limit:g}")


def _is_within(value: str, limit: float) -> bool:
    try:
        return 0 < float(value) <= limit
    except ValueError:
        return True  # is refused as no number where the bounds are made


def _refused(name: str, why: str = "") -> EngineError:
    return EngineError(
        f"Code: 164. DB::Exception: The setting {name} cannot be changed here{why}. (READONLY)"
    )
