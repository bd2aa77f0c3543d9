"""System tables as a user of a ClickHouse server would see them: without paths and without what
cannot be read. For the embedded engine, which has no accounts.

They are views in a database in memory. A name like `system.tables` in a query is replaced by that
of its view before the query is judged.

`ViewQueries` are views of a reader that nothing but DESCRIBE reads, used in one event loop. ibis
learns the columns of a query by `CREATE VIEW ibis_clickhouse_metadata_… AS query`, DESCRIBE and
DROP VIEW. A reader may create nothing, so the store remembers the query and describes it instead.
It is judged as any other when it runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.store.policy.permissions import (
    INFORMATION_TABLES,
    SYSTEM_TABLES,
    SYSTEM_VIEWS,
    VIEWS_DATABASE,
    quoted,
    settable,
)
from services.store.policy.sql_statements import whole
from services.store.policy.sql_tokens import Kind, TextError, Token, scan
from services.store.tables import DATABASE

_SYSTEM: Final = "system"
_INFORMATION: Final = "information_schema"
_BARE: Final[Mapping[str, str]] = {
    "tables": "* REPLACE (arrayMap(path -> '', data_paths) AS data_paths, '' AS metadata_path)",
    "databases": "* REPLACE ('' AS data_path, '' AS metadata_path)",
    "parts": "* REPLACE ('' AS path)",
    "settings": (
        "* REPLACE (toUInt8(if(getSetting('readonly') = 0, {admin}, {reader})) AS readonly)"
    ),
}
# Columns that a table of the engine has as aliases, which `*` leaves out.
_ALIASES: Final[Mapping[str, str]] = {
    "clusters": "name AS cluster",
    "columns": "name AS column",
    "databases": "name AS database",
    "parts": "bytes_on_disk AS bytes, marks_bytes AS marks_size, name AS part_name",
    "tables": "name AS `table`",
}
_OWN: Final = f"database = {quoted(DATABASE)}"
PREFIX: Final = "ibis_clickhouse_metadata"
MOST_VIEWS: Final = 100
MOST_BYTES: Final = 1024 * 1024
NOTHING: Final = "SELECT 1 WHERE 0 FORMAT Null"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, sorted(names)))


def _readable(database: str, table: str) -> str:
    """The condition that a table may be read."""
    return (
        f"{database} != {quoted(VIEWS_DATABASE)}"
        f" AND ({database} != '{_SYSTEM}'"
        f" OR {table} IN ({_listed([*SYSTEM_TABLES, *SYSTEM_VIEWS])}))"
        f" AND (lower({database}) != '{_INFORMATION}'"
        f" OR lower({table}) IN ({_listed([*INFORMATION_TABLES])}))"
    )


_WHERE: Final[Mapping[str, str]] = {
    "tables": _readable("database", "name"),
    "columns": _readable("database", "table"),
    "databases": f"name != {quoted(VIEWS_DATABASE)}",
    "parts": _OWN,
    "mutations": _OWN,
    "data_skipping_indices": _OWN,
    "projections": _OWN,
    "processes": "query_id = queryID()",
    "dictionaries": "0",
    "clusters": "0",
    "macros": "0",
}


def view_statements(settings: Sequence[str]) -> Iterator[str]:
    """Statements that create the views. settings: names of all settings of the engine."""
    yield f"CREATE DATABASE IF NOT EXISTS {VIEWS_DATABASE} ENGINE = Memory"
    closed = {
        who: f"name NOT IN ({_listed([name for name in settings if settable(name, is_admin)])})"
        for who, is_admin in (("reader", False), ("admin", True))
    }
    for name in SYSTEM_VIEWS:
        columns = _BARE.get(name, "*").format(**closed)
        if name in _ALIASES:
            columns += f", {_ALIASES[name]}"
        where = _WHERE.get(name, "1")
        yield (
            f"CREATE VIEW IF NOT EXISTS {VIEWS_DATABASE}.{name} AS"
            f" SELECT {columns} FROM system.{name} WHERE {where}"
        )
    for name, database, table in (
        ("tables", "table_schema", "table_name"),
        ("columns", "table_schema", "table_name"),
        ("schemata", "schema_name", "''"),
    ):
        where = (
            _readable(database, table)
            if name != "schemata"
            else (f"{database} != {quoted(VIEWS_DATABASE)}")
        )
        yield (
            f"CREATE VIEW IF NOT EXISTS {VIEWS_DATABASE}.information_{name} AS"
            f" SELECT * FROM information_schema.{name} WHERE {where}"
        )


def redirected(text: str, current: str = DATABASE) -> str:
    """The text with the names of views for those of system tables. current: the database of names
    without one."""
    try:
        tokens = scan(text)
    except TextError:
        return text  # is refused when it is judged
    if [token.word for token in tokens[:2]] == ["SHOW", "CREATE"]:
        return text
    shown = _shown(tokens, current)
    if shown is not None:
        return shown
    parts, at = [], 0
    for place in range(len(tokens) - 2):
        database, dot, table = tokens[place : place + 3]
        before = tokens[place - 1].text if place else ""
        names = {database.kind, table.kind} <= {Kind.WORD, Kind.NAME}
        view = _view_of(database.text, table.text) if names and dot.text == "." else None
        if view is not None and before != ".":
            parts += [text[at : database.begin], f"{VIEWS_DATABASE}.{view}"]
            at = table.end
    return "".join([*parts, text[at:]])


def _view_of(database: str, table: str) -> str | None:
    if database == _SYSTEM and table in SYSTEM_VIEWS:
        return table
    if database.lower() == _INFORMATION and table.lower() in ("tables", "columns", "schemata"):
        return f"information_{table.lower()}"
    return None


def _shown(tokens: Sequence[Token], current: str) -> str | None:
    """SHOW DATABASES, and SHOW TABLES of a system database, as a SELECT; None for others."""
    left = list(tokens)
    while left and left[-1].text == ";":
        left.pop()
    words = [token.word for token in left]
    is_full = words[1:2] == ["FULL"]
    if words[:1] != ["SHOW"] or len(left) < 2 + is_full:
        return None
    kind, left = words[1 + is_full], left[2 + is_full :]
    where, columns = "1", "name"
    if kind == "TABLES":
        is_named = len(left) > 1 and left[0].word in ("FROM", "IN")
        origin = left[1].text if is_named else current
        if origin.lower() not in (_SYSTEM, _INFORMATION):
            return None
        left, where = left[2 * is_named :], f"database = {quoted(origin)}"
        columns = "name, 'SYSTEM VIEW' AS table_type" if is_full else "name"
    elif kind != "DATABASES" or is_full:
        return None
    tail = _ending(left)
    if tail is None:
        return None
    like, ending = tail
    source = f"{VIEWS_DATABASE}.{kind.lower()}"
    return f"SELECT {columns} FROM {source} WHERE {where}{like} ORDER BY name{ending}"


def _ending(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """The condition of `[NOT] LIKE pattern`, and `LIMIT n` and `FORMAT name`; None for others."""
    words, left, like, ending = [token.word for token in tokens], list(tokens), "", ""
    negated = words[:1] == ["NOT"]
    if words[negated : negated + 1] in (["LIKE"], ["ILIKE"]) and len(left) > negated + 1:
        if left[negated + 1].kind is not Kind.STRING:
            return None
        taken = left[: negated + 2]
        like = " AND name " + " ".join(token.text for token in taken)
        left = left[negated + 2 :]
    for word, kind in (("LIMIT", Kind.NUMBER), ("FORMAT", Kind.WORD)):
        if len(left) > 1 and left[0].word == word and left[1].kind is kind:
            ending += f" {word} {left[1].text}"
            left = left[2:]
    return (like, ending) if not left else None


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
