"""Publishes what an evaluation counts, every count once, also across the death of a process."""

from collections import Counter
from typing import Any

import structlog
from confluent_kafka import Message

from schemas import catalogue, protocol
from services.evaluator.evaluation import Evaluation
from services.evaluator.history import Published
from services.evaluator.pair_log import without
from services.evaluator.share import Place, reached
from services.runtime.events import Events

log = structlog.get_logger()


class Publication:
    """What one run says on the bus.

    A process that takes over a run is given what was published `already` and the offsets where all
    topics ended when it began. Until it has read that far it publishes nothing; then it publishes
    the difference between what it has counted and what was published.
    """

    def __init__(
        self,
        events: Events,
        run_id: str,
        where: dict[str, tuple[str, str]],
        already: Published | None = None,
        ends: dict[Place, int] | None = None,
    ) -> None:
        self._events = events
        self._run_id = run_id
        self._owed = already.owed if already is not None else None
        self._letters = already.dead_letters if already is not None else set()
        self._pairs = already.pairs() if already is not None else {}
        self._ends = ends or {}
        self.totals: dict[str, dict[str, Counter[str]]] = {}
        for pipeline, stage in where.values():
            none = dict.fromkeys(protocol.VERDICTS, 0)
            self.totals.setdefault(pipeline, {})[stage] = Counter(none)

    @property
    def is_behind(self) -> bool:
        """Whether this process has not yet counted all that the one before it may have."""
        return self._owed is not None

    def publish(self, evaluation: Evaluation, positions: dict[Place, int]) -> None:
        """Publish what is new, given how far the topics have been read. Raises
        NotRepeatableError."""
        for topic, fields in evaluation.take_events():
            if topic == catalogue.PAIRS:
                self._publish_pairs(fields)
                continue
            if topic == catalogue.VERDICTS and fields["phase"] == "measure":
                counts = {verdict: fields[verdict] for verdict in protocol.VERDICTS}
                self.totals[fields["pipeline"]][fields["stage"]].update(counts)
            if self._owed is None:
                self._events.publish(topic, self._run_id, **fields)
            else:
                self._owed.count(topic, fields)
        if self._owed is not None and reached(positions, self._ends):
            for topic, fields in self._owed.events():
                self._events.publish(topic, self._run_id, **fields)
            self._owed = None
            log.info("caught_up", run_id=self._run_id)

    def _publish_pairs(self, fields: dict[str, Any]) -> None:
        """A pair is a fact of its own, so it need not wait until all has been counted again."""
        known = self._pairs.get((fields["pipeline"], fields["stage"]))
        left = fields if known is None else without(fields, known)
        if left is not None:
            self._events.publish(catalogue.PAIRS, self._run_id, **left)

    def dead_letter(self, message: Message, reason: str) -> None:
        """Keep a record that does not decode, unless it was kept before."""
        if (message.topic(), message.partition(), message.offset()) not in self._letters:
            self._events.dead_letter(message, reason, self._run_id)
