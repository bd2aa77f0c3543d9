"""Have the engine read a query, and judge it by that. See services/store/permissions.py."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from services.store.engine import EngineError, Query
from services.store.permissions import (
    format_clause,
    quoted,
    refusal,
    refusal_to_admin,
    refused_format,
    refused_setting,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WRAPPED = ": In scope SELECT formatQuerySingleLine("
EngineReads = Callable[[str, Mapping[str, str]], str]


class Judge(Protocol):
    """Says what of a request may reach the engine. `JUDGE` is the one that engines use."""

    def settings(self, query: Query, bounds: Collection[str]) -> dict[str, str]:
        """The settings that a request may have, but for its bounds. Raises EngineError."""

    def statement(
        self, query: Query, bounds: Collection[str], engine_reads: EngineReads
    ) -> "Statement":
        """What is to be run. Raises EngineError."""


@dataclass(frozen=True)
class Statement:
    """What was judged, and is run exactly so.

    parameters: values of the `{name:Type}` that are left in the text. output_format: that of the
    FORMAT clause, else the request's. insert: the statement in the engine's own writing where data
    follow it, else None.
    """

    text: str
    parameters: Mapping[str, str]
    output_format: str
    insert: str | None = None


class FirstWall:
    """`Judge` by the engine's own reading of the query."""

    def settings(self, query: Query, bounds: Collection[str]) -> dict[str, str]:
        return judged_settings(query, bounds)

    def statement(
        self, query: Query, bounds: Collection[str], engine_reads: EngineReads
    ) -> Statement:
        formatted = judged(query, bounds, engine_reads)
        named = format_clause(formatted) or query.output_format
        insert = formatted if query.data else None
        return Statement(query.text, query.parameters, named, insert)


JUDGE: Judge = FirstWall()


def judged_settings(query: Query, bounds: Collection[str]) -> dict[str, str]:
    """The settings that a request asks for and may have, but for its bounds. Raises EngineError.

    They go to the engine before the query, so this comes first.
    """
    found = {}
    for name, value in query.settings.items():
        if not _NAME.fullmatch(name):
            raise EngineError(f"Code: 115. DB::Exception: Unknown setting {name!r}.")
        if name in bounds or name == "readonly":
            continue
        if refused_setting(name, query.may_write):
            raise _refused(f"The setting {name} cannot be changed here.")
        found[name] = value
    return found


def judged(query: Query, bounds: Collection[str], engine_reads: EngineReads) -> str:
    """The query as the engine writes it itself, where it may be run. Raises EngineError.

    bounds: settings that the reader's query must leave alone. engine_reads: the text that the
    engine answers to a statement, given parameters.
    """

    def want_none(reason: str | None) -> None:
        if reason is not None:
            raise _refused(reason)

    def judge(tree: str) -> str | None:
        if query.may_write:
            return refusal_to_admin(formatted, tree)
        return refusal(formatted, tree, bounds)

    want_none(refused_format(query.output_format))
    formatted = _formatted(query.text, engine_reads)
    # Twice: a statement that its words rule out is not given to the engine at all.
    want_none(judge(""))
    want_none(judge(engine_reads(f"EXPLAIN AST {formatted}", query.parameters)))
    return formatted


def _refused(reason: str) -> EngineError:
    return EngineError(f"Code: 164. DB::Exception: {reason} (READONLY)")


def _formatted(text: str, engine_reads: EngineReads) -> str:
    """One statement; raises what the parser says of anything else."""
    try:
        return engine_reads(f"SELECT formatQuerySingleLine({quoted(text)}) FORMAT RawBLOB", {})
    except EngineError as error:
        raise EngineError(str(error).split(WRAPPED)[0] + " (SYNTAX_ERROR)") from error
