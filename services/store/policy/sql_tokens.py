"""Tokenizes a query by ClickHouse's lexical grammar, within bounds that apply before it is parsed.

Pure, in one pass over the text. It protects the engine's parser from text that is too long, too
deeply nested, or grows while it is parsed. Text outside of literals and comments is ASCII, and
names contain no quotes, backslashes or control characters, so that no two parsers can interpret a
query differently.
https://clickhouse.com/docs/sql-reference/syntax is the grammar.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_TOKENS: Final = 60_000
MAX_NESTING: Final = 100
# Maximum nesting of operators, over all open brackets.
MAX_CHAIN: Final = 300
# The parser expands `a BETWEEN b AND c` to `a >= b AND a <= c`, so each one in a chain doubles it.
MAX_GROWN_NODES: Final = 150_000
BYTES_PER_NODE: Final = 16

_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "CASE": "END"}
_OUTSIDE: Final = "nothing"
_MARK: Final = re.compile(r"/\*|\*/")
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]++|--[^\n]*+|\#[ !][^\n]*+)
    |(?P<string>'(?:[^'\\]|\\.|'')*+')
    |(?P<quoted>`[^`]*+`|"[^"]*+")
    |(?P<number>0[xX][0-9A-Fa-f_]++|0[bB][01_]++|[0-9][0-9_]*+(?:\.[0-9_]*+)?(?:[eE][+-]?[0-9]++)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*+)
    |(?P<tag>\$[A-Za-z0-9_]*+\$)
    |(?P<sign>->|::|<=>|<=|>=|<>|!=|==|<<|>>|\|\||@@|[()\[\]{}.,;+*/%=<>!?:^-])""",
    re.VERBOSE | re.DOTALL,
)
_UNFIT_IN_NAMES: Final = re.compile(r"['\"`\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_AFTER_NO_WORD: Final = frozenset("$")
_LASTING: Final = frozenset({"->", "?", "INTERVAL", "EXPLAIN"})
_WORD_OPERATORS: Final = frozenset(
    {"NOT", "LIKE", "ILIKE", "IN", "IS", "MOD", "DIV", "REGEXP", "EXCEPT", "INTERSECT"}
    | {"DISTINCT", "ANY", "ALL", "DATE", "TIMESTAMP"}
)
_NO_OPERATORS: Final = frozenset(";)]}([{")


class TextError(ValueError):
    """A text that must not be parsed; the text is the reason in one sentence."""


class Kind(Enum):
    """Kind of a token."""

    WORD = "word"
    NAME = "name"
    NUMBER = "number"
    STRING = "string"
    SIGN = "sign"


class Token(NamedTuple):
    """One token: a bare word, a quoted name, a number, a literal or a sign.

    text: as written, but without the quotes of a name. begin, end: its position in the query.
    """

    kind: Kind
    text: str
    begin: int
    end: int

    @property
    def word(self) -> str:
        """The word in upper case; empty if it is not a word."""
        return self.text.upper() if self.kind is Kind.WORD else ""


def is_fit_name(name: str) -> bool:
    """Whether a name contains no quote, backslash or control character."""
    return bool(name) and _UNFIT_IN_NAMES.search(name) is None


def scan(text: str) -> list[Token]:
    """All tokens of a query within bounds. Raises TextError."""
    return list(bounded(text))


def bounded(text: str) -> Iterator[Token]:
    """The tokens one by one. Raises TextError where a bound is exceeded."""
    bounds = _Bounds()
    if len(text) > MAX_TEXT_BYTES or len(_encoded(text)) > MAX_TEXT_BYTES:
        raise TextError(f"A query has at most {MAX_TEXT_BYTES} bytes.")
    for token in tokens(text):
        bounds.take(token)
        yield token


def tokens(text: str) -> Iterator[Token]:
    """The tokens without spaces and comments. Raises TextError for invalid text."""
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            at = _end_of_comment(text, at)
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise TextError(_strange(text, at))
        kind, end = match.lastgroup, match.end()
        if kind == "tag":
            end = text.find(match[0], end) + len(match[0])
            if end < match.end():
                raise TextError(f"The literal {match[0]} is not terminated.")
            yield Token(Kind.STRING, text[at:end], at, end)
        elif kind == "quoted":
            name = match[0][1:-1]
            if not is_fit_name(name) or text[end : end + 1] == text[at]:
                raise TextError("A name must not contain a quote, backslash or control character.")
            yield Token(Kind.NAME, name, at, end)
        elif kind != "space":
            if kind in ("word", "number") and text[end : end + 1] in _AFTER_NO_WORD:
                raise TextError(_strange(text, end))
            yield Token(_KINDS[kind or ""], match[0], at, end)
        at = end


_KINDS: Final = {kind.value: kind for kind in Kind}


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TextError("The query is not valid Unicode.") from None


def _end_of_comment(text: str, at: int) -> int:
    """The end of a comment; these comments nest."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise TextError("A comment is not terminated.")


def _strange(text: str, at: int) -> str:
    character = text[at]
    if character in "'\"`":
        return f"The {character} at character {at + 1} is not terminated."
    return f"The character {character!a} at {at + 1} cannot be used outside of literals."


@dataclass
class _Level:
    """State of an open bracket, or of the text outside of all brackets.

    closing: the token that ends it. below: number of operators above the next operand in the tree,
    of which `lasting` are not ended by AND and OR. nodes: upper bound of the nodes of the current
    expression. finished: of those before it. between: number of the next ANDs that belong to a
    BETWEEN.
    """

    closing: str
    below: int = 0
    lasting: int = 0
    nodes: int = 0
    finished: int = 0
    between: int = 0


@dataclass
class _Bounds:
    """Counts tokens, nesting and growth."""

    levels: list[_Level] = field(default_factory=lambda: [_Level(_OUTSIDE)])
    count: int = 0
    chain: int = 0

    def take(self, token: Token) -> None:
        """Count one more token. Raises TextError."""
        self.count += 1
        if self.count > MAX_TOKENS:
            raise TextError(f"A query has at most {MAX_TOKENS} tokens.")
        level = self.levels[-1]
        level.nodes += 1 + len(token.text) // BYTES_PER_NODE
        if token.kind is not Kind.WORD and token.kind is not Kind.SIGN:
            return
        name = token.text.upper()
        if name in _CLOSING:
            self._open(name)
        elif name == level.closing:
            self._close()
        elif name in (")", "]", "}"):
            # CASE may also be a plain name, which has no END.
            while len(self.levels) > 1 and self.levels[-1].closing == "END":
                self._close()
            if self.levels[-1].closing != name:
                raise TextError(f"The bracket {name} has no opening bracket.")
            self._close()
        else:
            self._operate(level, name)
        if self.levels[-1].nodes > MAX_GROWN_NODES:
            raise TextError("The query is too large after BETWEEN is expanded.")

    def _open(self, name: str) -> None:
        self.levels.append(_Level(_CLOSING[name]))
        self.chain += 1
        if len(self.levels) > MAX_NESTING:
            raise TextError(f"A query can be nested at most {MAX_NESTING} deep.")
        self._want_short_chain()

    def _close(self) -> None:
        level = self.levels.pop()
        self.chain -= 1 + level.below
        outer = self.levels[-1]
        outer.nodes += level.nodes + level.finished
        if level.closing == "]":  # brackets may be an index into what precedes them
            outer.below += 1
            self.chain += 1

    def _operate(self, level: _Level, name: str) -> None:
        if name == ",":
            self._end_expression(level, 0)
        elif name in ("AND", "OR") and not (name == "AND" and level.between):
            self._end_expression(level, level.lasting)
        elif name == "AND":
            level.between -= 1
        elif (
            name == "BETWEEN" or name in _LASTING or name in _WORD_OPERATORS or self._is_sign(name)
        ):
            if name == "BETWEEN":
                level.between, level.nodes = level.between + 1, 2 * level.nodes
            level.below += 1
            level.lasting += name in _LASTING
            self.chain += 1
            self._want_short_chain()

    def _is_sign(self, name: str) -> bool:
        return not name[0].isalpha() and name[0] != "_" and name not in _NO_OPERATORS

    def _end_expression(self, level: _Level, below: int) -> None:
        self.chain -= level.below - below
        level.below, level.between = below, 0
        if not below:
            level.lasting = 0
            level.finished += level.nodes
            level.nodes = 0

    def _want_short_chain(self) -> None:
        if self.chain > MAX_CHAIN:
            raise TextError(f"At most {MAX_CHAIN} operators can be nested.")
