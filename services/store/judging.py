"""Have the engine read a query, and judge it by that. See services/store/permissions.py."""

import re
from collections.abc import Callable, Collection, Mapping

from services.store.engine import EngineError, Query
from services.store.permissions import (
    quoted,
    refusal,
    refusal_to_admin,
    refused_format,
    refused_setting,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WRAPPED = ": In scope SELECT formatQuerySingleLine("
EngineReads = Callable[[str, Mapping[str, str]], str]


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
            raise EngineError(
                f"Code: 164. DB::Exception: The setting {name} cannot be changed here. (READONLY)"
            )
        found[name] = value
    return found


def judged(query: Query, bounds: Collection[str], engine_reads: EngineReads) -> str:
    """The query as the engine writes it itself, where it may be run. Raises EngineError.

    bounds: settings that the reader's query must leave alone. engine_reads: the text that the
    engine answers to a statement, given parameters.
    """

    def judge(formatted: str, tree: str) -> str | None:
        if query.may_write:
            return refusal_to_admin(formatted, tree)
        return refusal(formatted, tree, bounds)

    reason = refused_format(query.output_format)
    formatted = "" if reason else _formatted(query.text, engine_reads)
    # Twice: a statement that its words rule out is not given to the engine at all.
    reason = reason or judge(formatted, "")
    if reason is None:
        tree = engine_reads(f"EXPLAIN AST {formatted}", query.parameters)
        reason = judge(formatted, tree)
    if reason is not None:
        raise EngineError(f"Code: 164. DB::Exception: {reason} (READONLY)")
    return formatted


def _formatted(text: str, engine_reads: EngineReads) -> str:
    """One statement; raises what the parser says of anything else."""
    try:
        return engine_reads(f"SELECT formatQuerySingleLine({quoted(text)}) FORMAT RawBLOB", {})
    except EngineError as error:
        raise EngineError(str(error).split(WRAPPED)[0] + " (SYNTAX_ERROR)") from error
