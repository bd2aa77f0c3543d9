"""Lets statements through to engines that return no syntax tree."""

from services.store.engine import Query
from services.store.policy.query_policy import EngineReads, FirstWall, Statement


class LetThrough(FirstWall):
    """Judges settings only."""

    def statement(self, query: Query, _engine_reads: EngineReads) -> Statement:
        return Statement(query.text, query.parameters, query.output_format)
