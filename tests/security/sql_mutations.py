"""Variants of attacks from a seeded generator, with unchanged effect.

Spaces, comments, line endings and the case of keywords change between tokens. Whole queries are
placed after confusing columns, in subqueries, WITH clauses, unions and functions.
"""

import random
from collections.abc import Iterator
from itertools import pairwise

from services.store.policy.sql_tokens import Kind, TextError, Token, scan

KEYWORDS = (
    "SELECT FROM WITH AS IN INTO OUTFILE WHERE GROUP ORDER BY FORMAT SETTINGS UNION ALL DESCRIBE"
    " EXISTS EXPLAIN SHOW CREATE INSERT DROP ALTER TABLE VIEW TRUNCATE APPEND NOT"
)
GAPS = (
    " ",
    "\n",
    "\r\n",
    "\t",
    "\f",
    " /* ' */ ",
    '/* /* ` */ " */',
    " -- '\n",
    " -- \u2018\n",
    " # $a$\n",
    " /*\u2028*/ ",
    " --\r '\n",
)
# Prefixes of an attack's select list.
COLUMNS = (
    "'it''s' AS a0",
    "'\\'' AS a0",
    "'\\\\' AS a0",
    "$q$ ' $q$ AS a0",
    "$$`$$ AS a0",
    "'/*' AS a0",
    "'--' AS a0",
    '\'"\' AS "a 0"',
    "1 AS `a 0`",
    "1 AS `-- x`",
    "1 AS `/* x`",
    "1 AS `\u2018`",
    "'\U0001f600' AS a0",
    "' FORMAT CSV' AS a0",
    "1e5 AS a0, 0x1F AS a1",
)
WRAPPINGS = (
    "SELECT * FROM ({})",
    "WITH w AS ({}) SELECT * FROM w",
    "SELECT ({})",
    "SELECT 1 IN ({})",
    "SELECT EXISTS({})",
    "SELECT 1 UNION ALL ({})",
    "({})",
    "EXPLAIN {}",
    "DESCRIBE ({})",
    "SELECT if(1, (SELECT 1), ({}))",
    "SELECT * FROM view({})",
    "SELECT arrayMap(x -> ({}), [1])",
)


def mutations(text: str, seed: int, count: int) -> Iterator[str]:
    """`count` variants of an attack; none if it has no tokens."""
    random_ = random.Random(f"{seed} {text}")
    try:
        tokens = scan(text)
    except TextError:
        return
    for _ in range(count if tokens else 0):
        yield _mutated(tokens, random_)


def _mutated(tokens: list[Token], random_: random.Random) -> str:
    written = _written(tokens, random_)
    if tokens[0].word != "SELECT" or len(tokens) < 3 or any(token.text == ";" for token in tokens):
        return written
    if random_.random() < 0.5 and tokens[1].word not in ("DISTINCT", "*"):
        column = random_.choice(COLUMNS)
        written = written[:6] + f" {column}, " + written[6:]
    if random_.random() < 0.5 and not any(
        token.word in ("FORMAT", "SETTINGS", "OUTFILE", "PARALLEL") for token in tokens
    ):
        written = random_.choice(WRAPPINGS).format(written)
    return written


def _written(tokens: list[Token], random_: random.Random) -> str:
    parts = [_word(tokens[0], random_)]
    for last, token in pairwise(tokens):
        if token.begin > last.end or random_.random() < 0.2:
            parts.append(random_.choice(GAPS))
        parts.append(_word(token, random_))
    return "".join(parts)


def _word(token: Token, random_: random.Random) -> str:
    if token.kind is Kind.NAME:
        return f"`{token.text}`" if random_.random() < 0.5 else f'"{token.text}"'
    if token.word in KEYWORDS.split():
        return "".join(random_.choice((letter.lower(), letter.upper())) for letter in token.text)
    return token.text
