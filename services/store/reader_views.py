"""System tables as a user of a ClickHouse server would see them: without paths and without what
cannot be read. For the embedded engine, which has no accounts.

They are views in a database in memory. A name like `system.tables` in a query is replaced by that
of its view before the query is judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.store.permissions import (
    INFORMATION_TABLES,
    SYSTEM_TABLES,
    SYSTEM_VIEWS,
    VIEWS_DATABASE,
    quoted,
    settable,
)
from services.store.sql_tokens import Kind, TextError, Token, scan
from services.store.tables import DATABASE

_SYSTEM: Final = "system"
_INFORMATION: Final = "information_schema"


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
