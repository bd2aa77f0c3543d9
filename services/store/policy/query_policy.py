"""The first wall: decides what of a request may reach the engine.

Steps, each only after the one before: the text within bounds and its tokens
(services/store/policy/sql_tokens.py), names substituted for `{x:Identifier}`, the kind of
statement, and the engine's syntax tree of the text (services/store/policy/sql_tree.py). Exactly the
judged text is run, on the connection that parsed it.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from services.store.engine import EngineError, Query
from services.store.policy.permissions import is_ignored, quoted, refused_format, refused_setting
from services.store.policy.sql_statements import (
    FILTERS,
    NotAllowedError,
    data_begins,
    filters_of,
    first_word,
    is_insert,
    plain,
    substituted,
)
from services.store.policy.sql_tokens import TextError, scan
from services.store.policy.sql_tree import RefusedError, format_of, parameters_of, want_permitted

# Reading a query takes milliseconds, but on a machine that runs a benchmark it may have to wait.
DEADLINE_S: Final = 10.0
# With these the engine would evaluate expressions in the data of VALUES, which are not judged.
EVALUATING: Final = (
    "input_format_values_interpret_expressions",
    "input_format_values_deduce_templates_of_expressions",
)
MAX_PARAMETERS: Final = 200
MAX_PARAMETER_BYTES: Final = 64 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Without brackets, because the tree only shows those with a meaning.
_BARE = "replaceRegexpAll({}, '[() ]', '')"
_WRAPPED = (": In scope SELECT ", ": while executing 'FUNCTION ", ": While executing ")
_NO_TREE = re.compile(r"AST node of type '(.+?)(?:Query)?(?:_\w*| query)?' does not support JSON")
EngineReads = Callable[[str, Mapping[str, str]], str]


@dataclass(frozen=True)
class Insert:
    """An INSERT of data: the statement up to its settings, the settings, and the format of the
    data."""

    into: str
    settings: str
    data_format: str
    data: bytes


@dataclass(frozen=True)
class Statement:
    """A judged statement, which is run unchanged.

    parameters: values of the `{name:Type}` in the text. output_format: that of the FORMAT clause,
    else the request's. insert: the same statement in parts if it has data, else None.
    """

    text: str
    parameters: Mapping[str, str]
    output_format: str
    insert: Insert | None = None


class Judge(Protocol):
    """Decides what of a request may reach the engine. Engines use `JUDGE`."""

    def settings(self, query: Query, bounds: Collection[str]) -> dict[str, str]:
        """The settings of a request without its bounds. Raises EngineError.

        They are sent to the engine before the query, so they are judged first.
        """

    def statement(self, query: Query, engine_reads: EngineReads) -> Statement:
        """The statement to run. engine_reads: returns the engine's text result of a statement with
        parameters. Raises EngineError."""


class FirstWall:
    """`Judge` by allowlists."""

    def settings(self, query: Query, bounds: Collection[str]) -> dict[str, str]:
        result = {}
        for name, value in query.settings.items():
            if not _NAME.fullmatch(name):
                raise EngineError(f"Code: 115. DB::Exception: Unknown setting {name!r}.")
            if name in bounds or is_ignored(name, query.may_write):
                continue
            if name == FILTERS and filters_of(value) is not None:
                result[name] = value  # its conditions are judged with the statement
                continue
            if refused_setting(name, query.may_write):
                raise _refused(f"The setting {name} cannot be changed here.")
            result[name] = value
        return result

    def statement(self, query: Query, engine_reads: EngineReads) -> Statement:
        try:
            return _Reading(query, engine_reads).statement()
        except TextError as error:
            raise EngineError(f"Code: 62. DB::Exception: {error} (SYNTAX_ERROR)") from error
        except (NotAllowedError, RefusedError) as error:
            raise _refused(str(error)) from error


JUDGE: Judge = FirstWall()


class _Reading:
    """One query being judged."""

    def __init__(self, query: Query, engine_reads: EngineReads) -> None:
        self._query = query
        self._reads = engine_reads
        self._until = time.monotonic() + DEADLINE_S

    def statement(self) -> Statement:
        query = self._query
        _want_format(query.output_format)
        text, data = query.text, query.data
        if query.may_write and is_insert(text):
            begins = data_begins(text)
            if begins is not None:
                data = _inline(text[begins:]) + data
                return self._insert(text[:begins], data)
        text = substituted(text, query.parameters)
        tokens = scan(text)
        first_word(tokens, query.may_write)
        result = plain(text, tokens, query.database)
        if result is not None:
            used = self._tree(result.judged) if result.judged else {}
            _want_format(result.output_format or "TSV")
            named, text = result.output_format, result.text
        else:
            used = self._tree(text)
            if used["type"] == "InsertQuery" and "select" not in used:
                raise NotAllowedError("The INSERT has no data.")
            named = format_of(used)
        self._want_filters()
        names = parameters_of(used) if used else frozenset()
        return Statement(text, self._parameters(names), named or query.output_format)

    def _want_filters(self) -> None:
        """Judge the conditions that the engine adds to those of the query."""
        filters = filters_of(self._query.settings.get(FILTERS, "{}")) or {}
        for condition in filters.values():
            scan(condition)
            try:
                tree = self._tree(f"SELECT 1 WHERE ({condition}\n)")
                if parameters_of(tree):
                    raise RefusedError("A condition has no parameters.")
            except (RefusedError, NotAllowedError) as error:
                reason = f"The setting {FILTERS} cannot be changed here to this. {error}"
                raise RefusedError(reason) from error

    def _insert(self, text: str, data: bytes) -> Statement:
        text = substituted(text, self._query.parameters)
        scan(text)
        tree = self._tree(text)
        if tree["type"] != "InsertQuery" or "select" in tree or "columns_expression" in tree:
            raise NotAllowedError("Only INSERT INTO a table can have data.")
        insert = _insert_of(tree, data)
        whole = f"{insert.into} {insert.settings} FORMAT {insert.data_format}"
        return Statement(whole, {}, self._query.output_format, insert)

    def _tree(self, text: str) -> Mapping[str, Any]:
        """The syntax tree of a statement. Raises EngineError if it is invalid."""
        # A column of one row, because a constant's text would become part of each result's name.
        sql = (
            f"SELECT tree, {_BARE.format('formatQueryFromJSON(tree)')}"
            f" = {_BARE.format('formatQuerySingleLine(text)')} FROM (SELECT text,"
            f" parseQueryToJSON(text) AS tree FROM (SELECT materialize({quoted(text)}) AS text))"
            " FORMAT JSONCompact"
        )
        try:
            tree, is_whole = json.loads(self._reads(sql, {}))["data"][0]
            result: Mapping[str, Any] = json.loads(tree)
        except RecursionError:
            raise TextError("The query is nested too deeply.") from None
        except EngineError as error:
            raise _unreadable(error) from error
        if not is_whole:
            raise NotAllowedError("The engine does not describe this statement completely.")
        want_permitted(result, self._query.may_write, self._query.database)
        if time.monotonic() > self._until:
            raise EngineError(
                "Code: 159. DB::Exception: The query takes too long to read. (TIMEOUT_EXCEEDED)"
            )
        return result

    def _parameters(self, names: Collection[str]) -> dict[str, str]:
        given = self._query.parameters
        result = {name: given[name] for name in names if name in given}
        if len(result) > MAX_PARAMETERS or sum(map(len, result.values())) > MAX_PARAMETER_BYTES:
            raise TextError(f"Parameters have at most {MAX_PARAMETER_BYTES} characters.")
        return result


def _insert_of(tree: Mapping[str, Any], data: bytes) -> Insert:
    names = [tree[part]["name"] for part in ("database", "table") if part in tree]
    table = ".".join(f"`{name}`" for name in names)
    columns = tree.get("columns", {"children": []})["children"]
    if any(column["type"] != "Identifier" for column in columns):
        raise NotAllowedError("An INSERT with data must list its columns.")
    written = ", ".join(f"`{column['name']}`" for column in columns)
    changes = tree.get("settings_ast", {"changes": []})["changes"]
    settings = [f"{name} = 0" for name in EVALUATING]
    settings += [f"{each['name']} = {quoted(str(each['value']['value']))}" for each in changes]
    into = f"INSERT INTO {table}{f' ({written})' if written else ''}"
    return Insert(into, f"SETTINGS {', '.join(settings)}", tree["format"], data)


def _inline(text: str) -> bytes:
    """Inline data of an INSERT."""
    return text.lstrip(" \t").removeprefix("\r").removeprefix("\n").encode()


def _want_format(name: str) -> None:
    reason = refused_format(name)
    if reason is not None:
        raise NotAllowedError(reason)


def _unreadable(error: EngineError) -> Exception:
    """The engine's syntax error, without the statement used to parse the text."""
    message = str(error)
    for end in _WRAPPED:
        message = message.split(end, 1)[0]
    match = _NO_TREE.search(message)
    if match:
        return NotAllowedError(f"{match[1]} cannot be run here.")
    if "Couldn't restore Field from dump" in message:
        return NotAllowedError("The value of a setting must be a literal here.")
    if "UNKNOWN_FUNCTION" in str(error):
        return EngineError(
            "Code: 46. DB::Exception: This ClickHouse has no function parseQueryToJSON, which"
            " validates queries; a newer one is needed. (UNKNOWN_FUNCTION)"
        )
    return EngineError(f"{message} (SYNTAX_ERROR)")


def _refused(reason: str) -> EngineError:
    return EngineError(f"Code: 164. DB::Exception: {reason} (READONLY)")
