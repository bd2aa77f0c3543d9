"""Classifies statements by their first words, and parses those without a syntax tree. Pure.

EXISTS, DESCRIBE, SHOW CREATE, SHOW FUNCTIONS and SHOW SETTING are short, and the engine returns no
tree for them. They are parsed from the tokens and rewritten from the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.store.permissions import is_table
from services.store.sql_tokens import Kind, Token, bounded, is_fit_name, scan, tokens
from services.store.tables import DATABASE

READS: Final = ("SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "EXISTS", "EXPLAIN")
CHANGES: Final = ("INSERT", "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "OPTIMIZE", "KILL")
TREES: Final = frozenset({"TABLES", "DATABASES", "COLUMNS", "FIELDS", "FULL", "EXTENDED"})
# Their lists are short, and show nothing of the machine.
_SIMPLE: Final = (
    *(["ENGINES"], ["CLUSTERS"], ["CURRENT", "ROLES"], ["ENABLED", "ROLES"], ["DICTIONARIES"]),
)
MAX_DATA_HEAD: Final = 64 * 1024


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
    found = tokens[0].text[:40] if tokens else "nothing"
    raise NotAllowedError(f"Only {', '.join(known)} can be run here, not {found}.")


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
