"""What may be asked over HTTP. Pure: judges a query by how the engine itself reads it.

Two forms of a query come from the engine, so that no comment, escape, heredoc or parameter can hide
anything: its own formatting of the text, and its syntax tree (`EXPLAIN AST`). What the reader may
do is listed, and everything else is refused: statements, databases, system tables, table functions,
settings and formats. Scalar functions are too many to list, so those that reach beyond the query
are refused by name. The engine's `readonly = 1` holds besides.

Formats and settings matter because an embedded engine opens any path that they name: a template to
write rows by (and says what is in it when it is none), a schema, a place for a schema.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from services.store.tables import DATABASE

READS: Final = ("SELECT", "WITH", "SHOW", "DESCRIBE", "EXISTS", "EXPLAIN")
CHANGES: Final = ("INSERT", "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "OPTIMIZE", "KILL")
SHOWN: Final = ("TABLES", "DATABASES", "COLUMNS", "CREATE", "FUNCTIONS", "SETTING")
QUERIES: Final = frozenset(
    f"{name}Query"
    for name in (
        "Select",
        "SelectWithUnion",
        "SelectIntersectExcept",
        "TablesInSelect",
        "Describe",
        "ExistsTable",
        "ExistsView",
        "ExistsDatabase",
        "ShowCreateTable",
        "ShowCreateView",
        "ShowCreateDatabase",
    )
)
# Where a function is a table function.
TABLE_PLACES: Final = frozenset({"TableExpression", "CreateQuery", "InsertQuery", "Explain"})
SYSTEM_TABLES: Final = frozenset(
    [
        "one",
        "numbers",
        "numbers_mt",
        "zeros",
        "zeros_mt",
        "tables",
        "columns",
        "databases",
        "functions",
        "formats",
        "settings",
        "time_zones",
        "data_type_families",
        "table_engines",
        "table_functions",
        "keywords",
        "collations",
        "aggregate_function_combinators",
    ]
)
INFORMATION_TABLES: Final = frozenset({"tables", "columns", "schemata", "views"})
TABLE_FUNCTIONS: Final = frozenset(
    [
        "numbers",
        "numbers_mt",
        "zeros",
        "zeros_mt",
        "one",
        "values",
        "generateSeries",
        "generate_series",
        "view",
        "null",
        "generateRandom",
        "primes",
    ]
)
# Formats of rows alone: none has a template or a schema elsewhere. The engine takes any case.
FORMATS: Final = re.compile(
    r"(?:TabSeparated|TSV|CSV|CustomSeparated|JSON|Pretty|RowBinary|LineAsString|Raw)[A-Za-z]*"
    r"|Native|Arrow|ArrowStream|Parquet|ORC|Avro|BSONEachRow|MsgPack|NDJSON|Npy|Values|Vertical"
    r"|Markdown|MD|XML|SQLInsert|TSKV|HiveText|Hash|Null",
    re.I,
)
# Settings of a request that change how an answer is written or joined, and reach nothing.
FREE_SETTINGS: Final = (
    "output_format_",
    "format_csv_",
    "format_custom_",
    "format_tsv_",
    "input_format_",
    "date_time_",
    "session_timezone",
    "join_",
    "max_",
    "extremes",
    "limit",
    "offset",
    "final",
    "union_default_mode",
    "distinct_overflow_mode",
    "group_by_",
    "insert_",
    "async_insert",
)
# Settings that name a file or another machine, or show secrets.
REACHING_SETTINGS: Final = (
    "format_schema[a-z_]*",
    "output_format_schema",
    "format_template_[a-z_]+",
    "[a-z_]*schema_registry[a-z_]*",
    "[a-z_]*confluent[a-z_]*",
    "input_format_record_errors[a-z_]*",
    "errors_output_format",
    "format_display_secrets[a-z_]*",
    "url_base",
)
WITH_PATHS: Final = frozenset({"system.tables", "system.databases"})
REFUSED_NAMES: Final = (
    "file",
    "python",
    "outfile",
    "data_paths?",
    "metadata_path",
    "dict(?:Get|Has|Is)[a-z0-9]*",
    "joinGet[a-z]*",
    "ai(?:redact|similarity|filter|classify|embed|extract|generate|translate)",
    "catboostEvaluate",
    "hasColumnInTable",
    "reverseDNSQuery",
    "showCertificate",
    "getServerSetting",
    "getMacro",
    "getClientHTTPHeader",
    "currentRequestURL",
    "filesystem[a-z]+",
    "zookeeperSessionUptime",
    "addressTo[a-z]+",
    "serverUUID",
    "fuzzQuery",
    "logTrace",
    "tcpPort",
    *REACHING_SETTINGS,
)
REFUSED_TO_ADMIN: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:file|python|infile|outfile|dictionary|named collection|disk|backup"
    r"|function|user|role|grant|quota|profile|freeze|fetch"
    rf"|{'|'.join(REACHING_SETTINGS)})(?![A-Za-z0-9_])",
    re.I,
)
ENGINES: Final = re.compile(r"[A-Za-z]*MergeTree|Memory|Null|Log|TinyLog|Atomic")

_STRING = re.compile(r"'(?:\\.|[^'\\])*'", re.DOTALL)
_WORDS = re.compile(r"[\s(]*([A-Za-z]+)(?:\s+([A-Za-z]+))?(?:\s+([A-Za-z]+))?")
_REFUSED = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(REFUSED_NAMES)})(?![A-Za-z0-9_])", re.I)
_FORMAT = re.compile(r"\bFORMAT `?([A-Za-z0-9]+)`?(?: SETTINGS .*)?$", re.DOTALL)
_SET = re.compile(r"\bSETTINGS (.*)", re.DOTALL)
_REACHING = re.compile("|".join(REACHING_SETTINGS), re.I)
_NODE = re.compile(r"( *)([A-Za-z]+) ?(.*?)(?: \(alias .*\))?(?: \(children \d+\))?$")
_ENGINE = re.compile(r"\bENGINE = ([A-Za-z]+)", re.I)


def refused_setting(name: str, may_write: bool) -> bool:
    """Whether a request may not change a setting; may_write: whether it is the admin's."""
    is_known = may_write or name.lower().startswith(FREE_SETTINGS)
    return not is_known or _REACHING.fullmatch(name) is not None


def refused_format(name: str) -> str | None:
    """Why nothing can be read or written in a format, in one sentence, or None."""
    return None if FORMATS.fullmatch(name) else f"The format {name} cannot be used here."


def refusal(formatted: str, tree: str, bounds: Collection[str] = ()) -> str | None:
    """Why the reader may not run a query, in one sentence, or None.

    formatted and tree: the engine's own formatting of it and its syntax tree. bounds: settings that
    the query must leave alone.
    """
    words = _words(formatted)
    if words[0] not in READS:
        return f"Only {', '.join(READS)} can be run here, not {words[0] or 'this'}."
    if words[0] == "SHOW" and (words[2] if words[1] == "FULL" else words[1]) not in SHOWN:
        return f"SHOW {words[1]} cannot be run here."
    bare = _STRING.sub("''", formatted)
    found = _REFUSED.search(bare)
    if found:
        return f"The name {found[1]} cannot be used here, not even as an alias."
    changed = _SET.search(bare)
    for name in re.findall(r"\w+", changed[1]) if changed else ():
        if name.lower() in bounds:
            return f"The bound {name} can be tightened as a parameter of the request alone."
    for kind, _name, _parents in _nodes(tree):
        if kind.endswith("Query") and kind not in QUERIES:
            return f"{kind.removesuffix('Query')} cannot be run here."
    return _refused_clause(formatted) or _refused_node(tree)


def refusal_to_admin(formatted: str, tree: str) -> str | None:
    """Why not even the admin may run a statement here: it would reach beyond the database."""
    word, bare = _words(formatted)[0], _STRING.sub("''", formatted)
    if word in READS:
        return refusal(formatted, tree)
    if word not in CHANGES:
        return f"Only {', '.join((*READS, *CHANGES))} can be run here, not {word or 'this'}."
    found = REFUSED_TO_ADMIN.search(bare)
    if found:
        return f"The name {found[0]} cannot be used here."
    for engine in _ENGINE.findall(bare):
        if not ENGINES.fullmatch(engine):
            return f"Tables of the engine {engine} cannot be made here."
    return _refused_clause(formatted) or _refused_node(tree)


def format_clause(formatted: str) -> str | None:
    """Output format that a query itself names in its FORMAT clause, or None."""
    found = _FORMAT.search(_STRING.sub("''", formatted))
    return found[1] if found else None


def quoted(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"


def _refused_clause(formatted: str) -> str | None:
    named = format_clause(formatted)
    return refused_format(named) if named else None


def _words(formatted: str) -> list[str]:
    found = _WORDS.match(formatted)
    return [(word or "").upper() for word in found.groups()] if found else ["", "", ""]


def _refused_node(tree: str) -> str | None:
    nodes = list(_nodes(tree))
    tables = {name for kind, name, _parents in nodes if kind == "TableIdentifier"}
    for kind, name, parents in nodes:
        above = parents[-1] if parents else ("", "")
        if kind == "Function" and above[0] in TABLE_PLACES:
            if name not in TABLE_FUNCTIONS:
                return f"The table function {name} cannot be used here."
        elif kind in ("TableIdentifier", "Identifier") and not _may_be_named(kind, name):
            return f"{name} cannot be read here."
        elif (
            tables & WITH_PATHS
            and (kind.endswith("Asterisk") or kind.endswith("Matcher"))
            and ("Function", "count") not in parents[-2:]
        ):
            return "Name the columns of this table; those with paths cannot be read here."
    return None


def _may_be_named(kind: str, name: str) -> bool:
    """Whether an identifier is none of a table that cannot be read.

    A column may be called anything, `a.b` of a table `a` too, as long as it begins with no name of
    a database; a table without a database is one of the projection.
    """
    database, dot, table = name.partition(".")
    if database.lower() == "information_schema":
        return not dot or table.lower() in INFORMATION_TABLES
    if database == "system":
        return not dot or table.split(".")[0] in SYSTEM_TABLES
    if kind == "TableIdentifier":
        return not dot or database == DATABASE
    return database != "default" or not dot


def _nodes(tree: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """(kind, name, [(kind, name) of each node above]) of every node of `EXPLAIN AST`."""
    path: list[tuple[str, str]] = []
    for line in tree.splitlines():
        found = _NODE.match(line)
        if found is None:
            continue
        depth = len(found[1])
        del path[depth:]
        yield found[2], found[3], list(path)
        path += [("", "")] * (depth - len(path)) + [(found[2], found[3])]
