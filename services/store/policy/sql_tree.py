"""Judges a query by its syntax tree. Pure: the tree is the result of the engine's function
parseQueryToJSON.

Everything is an allowlist: kinds of nodes, their parts, functions, table functions, engines,
settings, formats and tables. A kind or part introduced by a new version of the engine is rejected
until it is listed. Kinds and parts are listed here, names in services/store/policy/permissions.py.

READ: of queries that read. WRITTEN: in addition, of the admin's statements. PARTS: both, by kind.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from services.store.policy.permissions import (
    ADMIN_SETTINGS,
    BY_TEXT,
    CODECS,
    COMMANDS,
    ENGINES,
    EXPLAIN_SETTINGS,
    EXPLAINED,
    FREE_SETTINGS,
    INDEX_TYPES,
    NOT_BY_NAME,
    OF_QUERIES,
    PATH_COLUMNS,
    STRUCTURED,
    TABLE_FUNCTIONS,
    TABLE_SETTINGS,
    WITH_PATHS,
    is_function,
    is_table,
    refused_format,
)
from services.store.policy.sql_tokens import scan
from services.store.tables import DATABASE

READ: Final[Mapping[str, str]] = {
    "SelectWithUnionQuery": "union_mode list_of_modes list_of_selects format_ast settings_ast",
    "SelectIntersectExceptQuery": "children final_operator",
    "SelectQuery": (
        "select tables order_by limit_length limit_offset limit_with_ties where group_by with"
        " having distinct window group_by_with_totals group_by_with_rollup group_by_with_cube"
        " group_by_with_grouping_sets group_by_all order_by_all prewhere qualify settings"
        " limit_by limit_by_length limit_by_offset limit_by_all interpolate cte_aliases"
        " recursive_with distinct_on"
    ),
    "ExplainQuery": "kind query settings format_ast settings_ast",
    "ShowTablesQuery": (
        "like not_like case_insensitive_like where_expression from databases full temporary"
        " limit_length format_ast settings_ast"
    ),
    "ShowColumnsQuery": (
        "table database like not_like case_insensitive_like where_expression extended full"
        " limit_length format_ast settings_ast"
    ),
    "SetQuery": "changes default_settings",
    "ExpressionList": "children separator",
    "Subquery": "children alias cte_name",
    "WithElement": "name subquery aliases is_materialized",
    "TablesInSelectQuery": "children",
    "TablesInSelectQueryElement": "table_expression table_join array_join",
    "TableExpression": (
        "database_and_table_name subquery table_function final sample_size sample_offset"
        " column_aliases"
    ),
    "TableIdentifier": "name name_parts alias",
    "TableJoin": "kind strictness locality on_expression using_expression_list is_natural",
    "ArrayJoin": "kind expression_list",
    "SampleRatio": "numerator denominator",
    "Identifier": "name name_parts alias",
    "Literal": "value alias",
    "QueryParameter": "name param_type alias",
    "Function": (
        "name arguments parameters alias is_operator window_definition window_name kind"
        " is_window_function is_lambda_function nulls_action no_empty_args"
    ),
    "WindowDefinition": (
        "parent_window_name partition_by order_by frame_is_default frame_type frame_begin_type"
        " frame_begin_preceding frame_begin_offset frame_end_type frame_end_preceding"
        " frame_end_offset"
    ),
    "WindowListElement": "name definition",
    "OrderByElement": (
        "direction nulls_direction nulls_direction_was_explicitly_specified expression collation"
        " with_fill fill_from fill_to fill_step fill_staleness"
    ),
    "InterpolateElement": "column expr",
    "Asterisk": "transformers expression",
    "QualifiedAsterisk": "qualifier transformers",
    "ColumnsRegexpMatcher": "pattern transformers expression",
    "ColumnsListMatcher": "column_list transformers expression",
    "QualifiedColumnsRegexpMatcher": "qualifier pattern transformers",
    "QualifiedColumnsListMatcher": "qualifier column_list transformers",
    "ColumnsTransformerList": "children",
    "ColumnsApplyTransformer": "func_name parameters lambda lambda_arg column_name_prefix",
    "ColumnsExceptTransformer": "children is_strict pattern",
    "ColumnsReplaceTransformer": "children is_strict",
    "ColumnsReplaceTransformerReplacement": "name children",
    "DataType": "name arguments",
    "EnumDataType": "name values",
    "NameTypePair": "name name_type",
    "Collation": "collation",
}
WRITTEN: Final[Mapping[str, str]] = {
    "InsertQuery": "database table columns format settings_ast select",
    "CreateQuery": (
        "database table database_ast table_ast if_not_exists is_ordinary_view is_materialized_view"
        " is_populate replace_view replace_table create_or_replace columns_list storage select"
        " comment as_database as_table targets aliases_list"
    ),
    "AlterQuery": "database table database_ast table_ast alter_object command_list",
    "AlterCommand": (
        "command_type if_not_exists if_exists first replace col_decl column rename_to ttl predicate"
        " update_assignments comment order_by index_decl index partition settings_changes"
        " settings_resets constraint_decl constraint projection_decl projection select clear_column"
    ),
    "DropQuery": (
        "database table database_ast table_ast kind if_exists if_empty is_view sync"
        " database_and_tables"
    ),
    "RenameQuery": "exchange elements",
    "OptimizeQuery": "database table partition final deduplicate deduplicate_by_columns",
    "KillQueryQuery": "kill_type where_expression sync",
    "Columns definition": "columns indices constraints projections primary_key",
    "ColumnDeclaration": (
        "name data_type default_specifier default_expression comment codec ttl null_modifier"
    ),
    "IndexDeclaration": "name granularity expression index_type",
    "ConstraintDeclaration": "name constraint_type expr",
    "ProjectionDeclaration": "name query",
    "ProjectionSelectQuery": "with select group_by order_by",
    "Storage": "engine partition_by primary_key order_by sample_by ttl_table settings",
    "StorageOrderByElement": "direction children",
    "TTLElement": "mode destination_type ttl_expr where_expr group_by_key group_by_assignments",
    "Assignment": "column_name children",
    "Partition": "value all fields_count",
    "ViewTargets": "targets",
}
PARTS: Final = {kind: frozenset(parts.split()) for kind, parts in {**READ, **WRITTEN}.items()}


Node = Mapping[str, Any]

# Texts that the engine parses within a query, such as types and aggregates, grow with BETWEEN too.
MAX_BETWEEN_IN_TEXT: Final = 4

_STATEMENTS: Final = frozenset(
    {"SelectWithUnionQuery", "SelectIntersectExceptQuery", "ExplainQuery", "ShowTablesQuery"}
    | {"ShowColumnsQuery"}
)
_CHANGES: Final = frozenset(
    {"InsertQuery", "CreateQuery", "AlterQuery", "DropQuery", "RenameQuery", "OptimizeQuery"}
    | {"KillQueryQuery"}
)
_ANY_COLUMN: Final = ("Asterisk", "QualifiedAsterisk")
_OWN: Final = ("", DATABASE)
_ROUTINES: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "table_function": ("table function", TABLE_FUNCTIONS),
    "engine": ("engine", ENGINES),
    "codec": ("codec", CODECS),
    "index_type": ("index", INDEX_TYPES),
}


class RefusedError(Exception):
    """A query may not be run; the text is the reason in one sentence."""


def want_permitted(tree: Node, may_write: bool, database: str = DATABASE) -> None:
    """Raise RefusedError, or TextError, if a query may not be run. may_write: whether it is the
    admin's. database: of names without one."""
    kind = str(tree.get("type"))
    if kind not in _STATEMENTS and not (may_write and kind in _CHANGES):
        raise RefusedError(f"{kind.removesuffix('Query')} cannot be run here.")
    if kind in _CHANGES and database != DATABASE:
        raise RefusedError(f"Only the database {DATABASE} can be changed here.")
    judge = _Judge(may_write, {id(node) for node in _outermost(tree)}, database)
    for node, place, parent in _nodes(tree):
        judge.take(node, place, parent)
    judge.end()


def format_of(tree: Node) -> str | None:
    """The format in a query's FORMAT clause."""
    named = tree.get("format_ast")
    return str(named["name"]) if named else None


def parameters_of(tree: Node) -> frozenset[str]:
    """Names of the `{name:Type}` in a query."""
    return frozenset(
        str(node["name"]) for node, _, _ in _nodes(tree) if node["type"] == "QueryParameter"
    )


def _outermost(tree: Node) -> Iterator[Node]:
    """The nodes whose settings apply to the whole query."""
    yield tree
    if "list_of_selects" in tree:
        yield from tree["list_of_selects"]["children"]
    if "query" in tree:
        yield tree["query"]
        yield from _outermost(tree["query"])


def _nodes(tree: Node) -> Iterator[tuple[Node, str, Node]]:
    """(node, the part of its parent that contains it, the parent) of all nodes."""
    waiting: list[tuple[Any, str, Node]] = [(tree, "", {})]
    while waiting:
        value, place, parent = waiting.pop()
        if isinstance(value, list):
            waiting += [(each, place, parent) for each in value]
        elif isinstance(value, dict) and "type" in value:
            yield value, place, parent
            if value["type"] in ("Literal", "SetQuery", "EnumDataType"):
                continue
            within = place == "codec" or value["type"] == "ExpressionList"
            for part, inner in value.items():
                # Lists do not count as parents, and a codec's arguments are codecs.
                waiting.append((inner, place if within else part, parent if within else value))
        elif isinstance(value, dict):
            waiting += [(inner, part, value) for part, inner in value.items()]


class _Judge:
    """Judges nodes one by one; `end` makes the checks that need all of them."""

    def __init__(self, may_write: bool, outermost: set[int], database: str) -> None:
        self._database = database
        self._may_write = may_write
        self._outermost = outermost
        self._with_paths = False
        self._any_column = False
        self._by_kind: Mapping[str, Callable[[Node, str, Node], None]] = {
            "Function": self._function,
            "ColumnsApplyTransformer": self._transformer,
            "TableIdentifier": self._table,
            "Identifier": self._identifier,
            "Literal": self._literal,
            "QueryParameter": self._parameter,
            "SelectWithUnionQuery": self._settings_place,
            "SelectQuery": self._settings_place,
            "ExplainQuery": self._explained,
            "ShowColumnsQuery": self._own_table,
            "ShowTablesQuery": self._shown,
            "SetQuery": self._settings,
            "InsertQuery": self._inserted,
            "CreateQuery": self._created,
            "AlterQuery": self._own_table,
            "AlterCommand": self._command,
            "DropQuery": self._dropped,
            "RenameQuery": self._renamed,
            "OptimizeQuery": self._own_table,
            "TTLElement": self._ttl,
            "ViewTargets": self._targets,
        }

    def take(self, node: Node, place: str, parent: Node) -> None:
        """Judge one node by itself."""
        kind = str(node["type"])
        parts = PARTS.get(kind)
        if parts is None or (kind in WRITTEN and not self._may_write):
            raise RefusedError(f"{kind} cannot be used here.")
        for part, value in node.items():
            if part != "type" and part not in parts and value not in (False, None, "", []):
                raise RefusedError(f"{part.upper().replace('_', ' ')} cannot be used here.")
        if kind in ("Asterisk", "QualifiedAsterisk") or kind.endswith("Matcher"):
            self._any_column |= not (kind in _ANY_COLUMN and _is_count(parent))
        judge = self._by_kind.get(kind)
        if judge is not None:
            judge(node, place, parent)

    def end(self) -> None:
        """Judge all nodes together."""
        if self._with_paths and self._any_column:
            raise RefusedError(
                "Name the columns of this table; those with paths cannot be read here."
            )

    def _function(self, node: Node, place: str, _parent: Node) -> None:
        name = str(node["name"])
        if place in _ROUTINES:
            what, known = _ROUTINES[place]
            if name not in known:
                raise RefusedError(f"The {what} {name} cannot be used here.")
            if name in STRUCTURED and not _is_plain(_argument(node, 0)):
                raise RefusedError(f"The structure for {name} must be a literal.")
            return
        if not is_function(name):
            raise RefusedError(f"The function {name} cannot be used here.")
        if name.lower().startswith(("array", "map")):
            self._named_functions(node)
        inner = _argument(node, 0)
        is_of_queries = name.lower() in OF_QUERIES or name == "formatQueryFromJSON"
        if is_of_queries and self._may_write:
            return  # the query of another store that uses this one as its server
        if name == "formatQueryFromJSON" and (inner or {}).get("name") != "parseQueryToJSON":
            raise RefusedError(f"The function {name} takes only results of parseQueryToJSON here.")
        at = BY_TEXT.get(name.lower())
        if at is not None:
            self._by_text(node, name, at)
        if name.lower().replace("ignoreset", "").endswith("in"):
            self._set_of(_argument(node, 1))

    def _named_functions(self, node: Node) -> None:
        """Array functions accept the name of another function in place of a lambda."""
        for given in (node.get("arguments") or {}).get("children") or []:
            if given["type"] == "Identifier" and str(given["name"]).lower() in NOT_BY_NAME:
                raise RefusedError(f"The function {given['name']} cannot be used here.")

    def _by_text(self, node: Node, name: str, at: int) -> None:
        """The argument that a function parses must be a literal, which can be judged."""
        given = _argument(node, at)
        if given is None or given["type"] != "Literal":
            raise RefusedError(f"The argument {at + 1 or 'last'} of {name} must be a literal.")
        text = str(given["value"]["value"])
        if name.lower().startswith("formatrow"):
            _want_none(refused_format(text))
        elif name.lower() in OF_QUERIES:
            scan(text)

    def _set_of(self, node: Node | None) -> None:
        """A name after IN refers to a table."""
        if node is None or node["type"] != "Identifier":
            return
        parts = _parts(node)
        is_elsewhere = len(parts) == 1 and self._database != DATABASE
        hidden = is_elsewhere and not is_table(parts, self._database)
        if hidden or ".".join(parts) in WITH_PATHS or any("/" in part for part in parts):
            raise RefusedError(f"{node['name']} cannot be read here.")

    def _transformer(self, node: Node, _place: str, _parent: Node) -> None:
        name = str(node.get("func_name") or "")
        if name and (not is_function(name) or name.lower() in BY_TEXT):
            raise RefusedError(f"The function {name} cannot be used here.")

    def _table(self, node: Node, place: str, _parent: Node) -> None:
        parts = _parts(node)
        changed = place == "database_and_tables"
        if not is_table(parts, self._database) or (
            changed and len(parts) > 1 and parts[0] != DATABASE
        ):
            raise RefusedError(f"{node['name']} cannot be read here.")
        whole = parts if len(parts) > 1 else (self._database, *parts)
        self._with_paths |= ".".join(whole) in WITH_PATHS

    def _identifier(self, node: Node, _place: str, parent: Node) -> None:
        """A column may have any name that does not begin with the name of a database other than the
        projection's. A name after IN may refer to a table. Whether there are paths may be asked:
        the JDBC driver tells tables from remote ones by it."""
        parts = _parts(node)
        _want_short_text(str(node["name"]))
        is_asked_for = str(parent.get("name", "")).lower() in ("empty", "notempty")
        names = ".".join(parts).lower().split(".")
        if PATH_COLUMNS.intersection(names[:-1] if is_asked_for else names):
            raise RefusedError(f"{node['name']} cannot be read here.")
        database, dot, _ = ".".join(parts).partition(".")
        if dot and database.lower() in ("system", "information_schema", "default"):
            table = tuple(".".join(parts).split(".")[:2])
            if not is_table(table):
                raise RefusedError(f"{node['name']} cannot be read here.")
            self._with_paths |= ".".join(table) in WITH_PATHS

    def _literal(self, node: Node, _place: str, _parent: Node) -> None:
        _want_short_text(str(node["value"].get("value")))

    def _parameter(self, node: Node, _place: str, _parent: Node) -> None:
        if "identifier" in str(node["param_type"]).lower():
            raise RefusedError(f"No name is given for the parameter {node['name']}.")

    def _settings_place(self, node: Node, _place: str, _parent: Node) -> None:
        if id(node) not in self._outermost:
            for part in ("settings", "settings_ast", "format_ast"):
                if node.get(part):
                    raise RefusedError("A subquery cannot have SETTINGS or FORMAT here.")
        self._settings_of(node)

    def _settings_of(self, node: Node) -> None:
        named = format_of(node)
        if named:
            _want_none(refused_format(named))

    def _settings(self, node: Node, place: str, parent: Node) -> None:
        known = FREE_SETTINGS | (ADMIN_SETTINGS if self._may_write else frozenset())
        if parent.get("type") == "ExplainQuery" and place == "settings":
            known = EXPLAIN_SETTINGS
        elif parent.get("type") in ("Storage", "AlterCommand"):
            known = TABLE_SETTINGS
        for change in node.get("changes", []):
            if change["name"] not in known:
                raise RefusedError(f"The setting {change['name']} cannot be changed here.")
            if change["value"]["field_type"] not in (
                "UInt64",
                "Int64",
                "Float64",
                "String",
                "Bool",
            ):
                raise RefusedError(f"The value of {change['name']} must be a literal.")
        for name in node.get("default_settings", []):
            if name not in known:
                raise RefusedError(f"The setting {name} cannot be changed here.")

    def _explained(self, node: Node, _place: str, _parent: Node) -> None:
        query = node.get("query") or {}
        if node["kind"] not in EXPLAINED or query.get("type") != "SelectWithUnionQuery":
            raise RefusedError(f"Only a SELECT can be explained here, not by {node['kind']}.")
        self._settings_of(node)

    def _shown(self, node: Node, _place: str, _parent: Node) -> None:
        origin = node.get("from")
        if not origin and not node.get("databases") and self._database != DATABASE:
            raise RefusedError("Name the database here.")
        if origin and not is_table((str(origin["name"]), "tables")):
            raise RefusedError(f"The tables of {origin['name']} cannot be listed here.")
        self._with_paths |= bool(node.get("where_expression"))  # it reads the system table itself
        self._settings_of(node)

    def _own_table(self, node: Node, _place: str, _parent: Node) -> None:
        _want_own(node.get("database"))
        _want_own_table(node.get("table"))
        if not node.get("database") and self._database != DATABASE:
            raise RefusedError(f"Name the database {DATABASE} here.")
        self._settings_of(node)

    def _inserted(self, node: Node, place: str, parent: Node) -> None:
        self._own_table(node, place, parent)
        if not node.get("table"):
            raise RefusedError("An INSERT names a table here.")
        if node.get("format"):
            _want_none(refused_format(str(node["format"])))

    def _created(self, node: Node, _place: str, _parent: Node) -> None:
        _want_own(node.get("database"))
        _want_own(node.get("as_database"))
        _want_own_table(node.get("table"))

    def _command(self, node: Node, _place: str, _parent: Node) -> None:
        if node["command_type"] not in COMMANDS:
            name = str(node["command_type"]).replace("_", " ")
            raise RefusedError(f"ALTER TABLE … {name} cannot be run here.")

    def _dropped(self, node: Node, place: str, parent: Node) -> None:
        self._own_table(node, place, parent)
        if node["kind"] not in ("Drop", "Truncate"):
            raise RefusedError(f"{node['kind']} cannot be run here.")

    def _renamed(self, node: Node, _place: str, _parent: Node) -> None:
        for element in node["elements"]:
            _want_own(element["from_database"])
            _want_own(element["to_database"])
            _want_own_table(element["to_table"])

    def _ttl(self, node: Node, _place: str, _parent: Node) -> None:
        if node["mode"] == "MOVE" or node["destination_type"] != "DELETE":
            raise RefusedError("Rows cannot be moved to another disk here.")

    def _targets(self, node: Node, _place: str, _parent: Node) -> None:
        for target in node["targets"]:
            _want_own(target.get("table_database"))


def _is_count(node: Node) -> bool:
    return node.get("type") == "Function" and str(node["name"]).lower() == "count"


def _parts(node: Node) -> tuple[str, ...]:
    return tuple(node.get("name_parts") or [node["name"]])


def _argument(node: Node, at: int) -> Node | None:
    result = (node.get("arguments") or {}).get("children") or []
    return result[at] if -len(result) <= at < len(result) else None


def _is_plain(node: Node | None) -> bool:
    """Whether an argument that may be a structure can be judged: a literal, or a tuple, which is
    never a structure."""
    if node is None or node["type"] == "Literal":
        return True
    return bool(node["type"] == "Function" and node["name"] == "tuple")


def _want_none(reason: str | None) -> None:
    if reason is not None:
        raise RefusedError(reason)


def _want_short_text(text: str) -> None:
    if text.lower().count("between") > MAX_BETWEEN_IN_TEXT:
        raise RefusedError("A literal or name holds BETWEEN too often.")


def _want_own(database: Any) -> None:
    name = database["name"] if isinstance(database, dict) else database
    if name not in (None, *_OWN):
        raise RefusedError(f"Only the database {DATABASE} can be named here, not {name}.")


def _want_own_table(table: Any) -> None:
    name = table["name"] if isinstance(table, dict) else table
    if name and not is_table((str(name),)):
        raise RefusedError(f"No table can be named {name} here.")
