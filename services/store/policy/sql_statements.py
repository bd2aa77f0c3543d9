"""Classifies statements by their first words, parses those without a syntax tree, and takes the
settings of a statement from its text. Pure.

EXISTS, DESCRIBE, SHOW CREATE, SHOW FUNCTIONS and SHOW SETTING are short, and the engine returns no
tree for them. They are parsed from the tokens and rewritten from the result.

SETTINGS at the end of a query, SET and USE are taken from the text, so that they are judged and
bounded as the settings of a request are, before the engine is made read-only. Only a list of `name
= literal` at the very end of a reading statement is taken; the syntax tree shows any other
SETTINGS, which are refused there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.store.engine import EngineError, Query
from services.store.policy.permissions import is_table
from services.store.policy.sql_tokens import (
    Kind,
    TextError,
    Token,
    bounded,
    is_fit_name,
    scan,
    tokens,
)
from services.store.tables import DATABASE

READS: Final = ("SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "EXISTS", "EXPLAIN")
CHANGES: Final = ("INSERT", "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "OPTIMIZE", "KILL")
TREES: Final = frozenset({"TABLES", "DATABASES", "COLUMNS", "FIELDS", "FULL", "EXTENDED"})
# Their lists are short, and show nothing of the machine.
_SIMPLE: Final = (
    *(["ENGINES"], ["CLUSTERS"], ["CURRENT", "ROLES"], ["ENABLED", "ROLES"], ["DICTIONARIES"]),
)
MAX_DATA_HEAD: Final = 64 * 1024
# A map from tables to conditions, which the Grafana plugin sends for its ad-hoc filters.
FILTERS: Final = "additional_table_filters"
_ENDINGS: Final = 2  # one before FORMAT and one after it
_WRITTEN: Final = re.compile(r"\bsettings\b", re.I)
_DEPTH: Final = {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))|''", re.DOTALL)
_ESCAPED: Final = dict(zip("bfnrt0av", "\b\f\n\r\t\0\a\v", strict=True))


class NotAllowedError(ValueError):
    """A statement that may not be run; the text is the reason in one sentence."""


@dataclass(frozen=True)
class Plain:
    """A rewritten statement without a tree. judged: a SELECT that it describes, which must be
    permitted first. output_format: that of its FORMAT clause."""

    text: str
    judged: str = ""
    output_format: str | None = None


def first_word(tokens: Sequence[Token], may_write: bool) -> str:
    """The kind of a statement. Raises NotAllowedError."""
    known = READS + (CHANGES if may_write else ())
    for token in tokens:
        if token.text != "(":
            word = "DESCRIBE" if token.word == "DESC" else token.word
            if word in known:
                return word
            break
    result = tokens[0].text[:40] if tokens else "nothing"
    raise NotAllowedError(f"Only {', '.join(known)} can be run here, not {result}.")


def substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with a name for each `{parameter:Identifier}`. Raises NotAllowedError."""
    tokens = scan(text)
    parts, at = [], 0
    for place in range(len(tokens) - 4):
        opening, name, colon, kind, closing = tokens[place : place + 5]
        if (opening.text, colon.text, closing.text) != ("{", ":", "}"):
            continue
        if kind.word != "IDENTIFIER" or name.kind is not Kind.WORD:
            continue
        value = values.get(name.text, "")
        if not is_fit_name(value) or not value.isprintable():
            raise NotAllowedError(f"The parameter {name.text} must be a name without quotes.")
        parts += [text[at : opening.begin], f"`{value}`"]
        at = closing.end
    return "".join([*parts, text[at:]]) if parts else text


def plain(text: str, tokens: Sequence[Token], database: str = DATABASE) -> Plain | None:
    """A statement without a tree, or None if it has one. database: of names without one. Raises
    NotAllowedError."""
    words = [token.word for token in tokens]
    if words[0] == "EXISTS" and tokens[1:2] and tokens[1].text != "(":
        return _exists(*_without_format(tokens[1:]), database)
    if words[0] in ("DESC", "DESCRIBE"):
        return _describe(text, *_without_format(tokens[1:]), database)
    if words[0] == "SHOW" and (words[1] if len(words) > 1 else "") not in TREES:
        return _show(*_without_format(tokens[1:]), database)
    return None


def is_insert(text: str) -> bool:
    """Whether the first word is INSERT, also after comments. Raises TextError."""
    first = next(tokens(text), None)
    return first is not None and first.word == "INSERT"


def data_begins(text: str) -> int | None:
    """Where the data of an INSERT begin in its text, after VALUES or after FORMAT and its name;
    None for an INSERT of a SELECT. Raises TextError, NotAllowedError."""
    depth, was = 0, ""
    for token in bounded(text[:MAX_DATA_HEAD]):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind is Kind.SIGN else 0
        if depth == 0 and was == "FORMAT":
            return token.end
        if depth == 0 and token.word == "VALUES":
            return token.end
        if depth == 0 and token.word in ("SELECT", "WITH", "FROM"):
            return None
        was = token.word
    raise NotAllowedError("The INSERT names no FORMAT and has no VALUES.")


def _without_format(tokens: Sequence[Token]) -> tuple[list[Token], str | None]:
    left = list(tokens)
    while left and left[-1].text == ";":
        left.pop()
    if len(left) > 2 and left[-2].word == "FORMAT" and left[-1].kind in (Kind.WORD, Kind.NAME):
        return left[:-2], left[-1].text
    return left, None


def _exists(tokens: list[Token], named: str | None, database: str) -> Plain:
    kind = "TABLE"
    if len(tokens) > 1 and tokens[0].word in ("TABLE", "VIEW", "DATABASE"):
        kind, tokens = tokens[0].word, tokens[1:]
    return Plain(
        f"EXISTS {kind} {_name(tokens, kind, database)}{_format(named)}", output_format=named
    )


def _show(tokens: list[Token], named: str | None, database: str) -> Plain:
    words = [token.word for token in tokens]
    written = ""
    if words[:1] == ["CREATE"]:
        kind = words[1] if len(words) > 2 and words[1] in ("TABLE", "VIEW", "DATABASE") else ""
        name = _name(tokens[2 if kind else 1 :], kind or "TABLE", database)
        written = f"SHOW CREATE {kind or 'TABLE'} {name}"
    elif words[:1] == ["FUNCTIONS"] and len(tokens) == 1:
        written = "SHOW FUNCTIONS"
    elif words[:1] == ["FUNCTIONS"] and words[1:2] in (["LIKE"], ["ILIKE"]) and len(tokens) == 3:
        if tokens[2].kind is Kind.STRING:
            written = f"SHOW FUNCTIONS {words[1]} {tokens[2].text}"
    elif words in _SIMPLE:
        written = f"SHOW {' '.join(words)}"
    elif words == ["PROCESSLIST"]:
        # Of one's own queries; there is no other while it runs.
        written = "SELECT * FROM system.processes WHERE query_id = queryID()"
    elif words == ["GRANTS"]:
        written = f"SELECT 'GRANT SELECT, SHOW ON {DATABASE}.*' AS GRANTS"
    elif words[:2] == ["CHANGED", "SETTINGS"] or words[:1] == ["SETTINGS"]:
        written = _settings_shown(tokens)
    elif words[:2] in (["INDEX", "FROM"], ["INDEXES", "FROM"], ["INDICES", "FROM"]):
        written = f"SHOW INDEX FROM {_name(tokens[2:], 'TABLE', database)}"
    elif words[:1] == ["SETTING"] and len(tokens) == 2 and tokens[1].kind is Kind.WORD:
        written = f"SHOW SETTING {tokens[1].text}"
    if not written:
        raise NotAllowedError(f"SHOW {words[0] if words else ''} cannot be run here.")
    return Plain(written + _format(named), output_format=named)


def _settings_shown(tokens: Sequence[Token]) -> str:
    """SHOW [CHANGED] SETTINGS [LIKE pattern]; empty if it is not of this form."""
    changed = tokens[0].word == "CHANGED"
    rest = tokens[1 + changed :]
    if len(rest) == 2 and rest[0].word in ("LIKE", "ILIKE") and rest[1].kind is Kind.STRING:
        like = f" {rest[0].word} {rest[1].text}"
    elif not rest:
        like = " LIKE '%'"
    else:
        return ""
    return f"SHOW {'CHANGED ' if changed else ''}SETTINGS{like}"


def _describe(text: str, tokens: list[Token], named: str | None, database: str) -> Plain:
    if len(tokens) > 1 and tokens[0].word == "TABLE":
        tokens = tokens[1:]
    if not tokens:
        raise NotAllowedError("DESCRIBE names no table.")
    if any(token.text == "(" for token in tokens[:2]):
        inner = text[tokens[0].begin : tokens[-1].end]
        if not _is_one_group(tokens[tokens[0].text != "(" :]):
            raise NotAllowedError("DESCRIBE takes one table, function or subquery here.")
        return Plain(f"DESCRIBE TABLE {inner}{_format(named)}", f"SELECT * FROM {inner}", named)
    name = _name(tokens, "TABLE", database)
    return Plain(f"DESCRIBE TABLE {name}{_format(named)}", output_format=named)


def _is_one_group(tokens: Sequence[Token]) -> bool:
    """Whether the first opening bracket closes at the very end."""
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind is Kind.SIGN:
            depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0:
            return at == len(tokens) - 1
    return False


def _name(tokens: Sequence[Token], kind: str, database: str) -> str:
    """The quoted name of a table or database that may be read."""
    names = [token.text for token in tokens[::2]]
    kinds = {token.kind for token in tokens[::2]}
    dots = {token.text for token in tokens[1::2]}
    if len(tokens) % 2 == 0 or dots - {"."} or kinds - {Kind.WORD, Kind.NAME}:
        raise NotAllowedError("The name of a table is expected here.")
    databases = ([DATABASE], ["default"], ["system"])
    if not (names in databases if kind == "DATABASE" else is_table(names, database)):
        raise NotAllowedError(f"{'.'.join(names)} cannot be read here.")
    return ".".join(f"`{name}`" for name in names)


def _format(named: str | None) -> str:
    return f" FORMAT {named}" if named else ""


def lifted(query: Query, most: Mapping[str, float | str]) -> Query:
    """The query without SETTINGS at its end, which become settings of the request.

    most: bounds, which they can only tighten. Raises EngineError.
    """
    if not _WRITTEN.search(query.text):
        return query
    text, result = query.text, dict[str, str]()
    for _ending in range(_ENDINGS):
        try:
            text, settings = _without_settings(text)
        except TextError:
            return query  # is refused when it is judged
        result = settings | result
    want_tighter(result, most)
    return replace(query, text=text, settings={**query.settings, **result}) if result else query


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
    result = {}
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
        result[str(names[0])] = str(names[1])
    return result


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
            result = _assigned(rest)
            return (text[: token.begin] + ending, result) if result else (text, {})
    return text, {}


def whole(tokens: list[Token]) -> list[Token]:
    """The tokens of a statement without the semicolon at its end."""
    return tokens[:-1] if tokens and _sign(tokens[-1]) == ";" else tokens


def _sign(token: Token) -> str:
    """The sign; empty if it is none."""
    return token.text if token.kind is Kind.SIGN else ""


def _assigned(tokens: Sequence[Token]) -> dict[str, str] | None:
    """The values in `name = literal, …`; None if it is not such a list."""
    result, at = dict[str, str](), 0
    while at < len(tokens):
        name, value = tokens[at], None
        if name.kind is Kind.WORD and [_sign(each) for each in tokens[at + 1 : at + 2]] == ["="]:
            value, at = _literal(tokens, at + 2)
        if value is None:
            return None
        result[name.text] = value
        if at < len(tokens) and _sign(tokens[at]) != ",":
            return None
        at += 1
    return result if tokens and _sign(tokens[-1]) != "," else None


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
