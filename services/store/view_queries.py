"""Views of a reader that nothing but DESCRIBE reads. Pure, and used in one event loop.

ibis learns the columns of a query by `CREATE VIEW ibis_clickhouse_metadata_… AS query`, DESCRIBE
and DROP VIEW. A reader may create nothing, so the store remembers the query and describes it
instead. It is judged as any other when it runs.
"""

from collections.abc import Sequence
from typing import Final

from services.store.sql_settings import whole
from services.store.sql_tokens import Kind, TextError, Token, scan
from services.store.tables import DATABASE

PREFIX: Final = "ibis_clickhouse_metadata"
MOST_VIEWS: Final = 100
MOST_BYTES: Final = 1024 * 1024
NOTHING: Final = "SELECT 1 WHERE 0 FORMAT Null"


class ViewQueries:
    """The queries of the views of all users. At a limit, the oldest is forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def in_place_of(self, user: str, text: str) -> str:
        """The statement to run in place of a statement about such a view, else the text itself."""
        first = text.lstrip()[:8].upper()
        if not first.startswith(("CREATE", "DESC", "DROP")):
            return text
        try:
            tokens = whole(scan(text))
        except TextError:
            return text  # is refused when it is judged
        words = [token.word for token in tokens]
        if words[:2] == ["CREATE", "VIEW"]:
            return self._created(user, text, tokens[2:])
        if words[:2] == ["DROP", "VIEW"]:
            name, rest = _name(tokens[2:])
            is_known = not rest and self._known.pop((user, name), None) is not None
            return NOTHING if is_known else text
        if words[:1] not in (["DESC"], ["DESCRIBE"]):
            return text
        name, rest = _name(tokens[2:] if words[1:2] == ["TABLE"] else tokens[1:])
        query = self._known.get((user, name))
        ending = text[rest[0].begin :] if rest else ""
        return text if query is None else f"DESCRIBE TABLE ({query}) {ending}".rstrip()

    def _created(self, user: str, text: str, tokens: Sequence[Token]) -> str:
        name, rest = _name(tokens)
        if not name.startswith(PREFIX) or len(rest) < 2 or rest[0].word != "AS":
            return text
        query = text[rest[1].begin : rest[-1].end]
        self._known.pop((user, name), None)
        self._known[user, name] = query
        while len(self._known) > MOST_VIEWS or sum(map(len, self._known.values())) > MOST_BYTES:
            del self._known[next(iter(self._known))]
        return f"DESCRIBE TABLE ({query}) FORMAT Null"


def _name(tokens: Sequence[Token]) -> tuple[str, Sequence[Token]]:
    """The name of a view of the projection's database at the beginning, empty if there is none, and
    what follows it."""
    names = [token for token in tokens[:3:2] if token.kind in (Kind.WORD, Kind.NAME)]
    if len(names) == 2 and tokens[1].text == "." and names[0].text == DATABASE:
        return names[1].text, tokens[3:]
    return (names[0].text, tokens[1:]) if names and names[0] is tokens[0] else ("", tokens)
