"""Have the engine read a query, and judge it by that. See services/store/permissions.py."""

from collections.abc import Callable, Mapping

from services.store.engine import EngineError, Query
from services.store.permissions import quoted, refusal, refusal_to_admin

WRAPPED = ": In scope SELECT formatQuerySingleLine("
EngineReads = Callable[[str, Mapping[str, str]], str]


def judged(query: Query, engine_reads: EngineReads) -> str:
    """The query as the engine writes it itself, where it may be run. Raises EngineError.

    engine_reads: the text that the engine answers to a statement, given parameters.
    """
    judge = refusal_to_admin if query.may_write else refusal
    formatted = _formatted(query.text, engine_reads)
    # Twice: a statement that its words rule out is not given to the engine at all.
    reason = judge(formatted, "")
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
