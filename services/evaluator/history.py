"""What a process that starts in the middle of a run has to know of the bus: what is published."""

from dataclasses import dataclass, field

import numpy as np

from schemas import catalogue
from services.evaluator.columns import Ints
from services.evaluator.pair_log import places
from services.evaluator.published import COUNTED, Owed
from services.runtime.kafka import assigned_consumer
from services.runtime.replay import Record, Spans, decoded, read_spans, spans_since
from services.runtime.settings import ServiceSettings

CLOCKS_APART_MS = 60_000  # of the brokers that lead the topics of results


@dataclass
class Published:
    """What one evaluator has published of one run: owed, with what its events have counted, and the
    places (topic, partition, offset) of dead letters.

    Events are not kept: their counts are added up, cell by cell. Pairs take 8 bytes each.
    """

    owed: Owed = field(default_factory=Owed)
    dead_letters: set[tuple[str, int, int]] = field(default_factory=set)
    _pairs: dict[tuple[str, str], list[Ints]] = field(default_factory=dict)

    def add(self, name: str, record: Record) -> None:
        """Take in one event of schema `name`."""
        if name == "dead_letter":
            self.dead_letters.add((record["topic"], record["partition"], record["offset"]))
        elif name == catalogue.record_of(catalogue.PAIRS):
            where = (np.array(record[one], np.int64) for one in ("partitions", "offsets"))
            known = self._pairs.setdefault((record["pipeline"], record["stage"]), [])
            known.append(places(*where))
        else:
            self.owed.deduct(name.replace("_", ".", 1), record)

    def pairs(self) -> dict[tuple[str, str], Ints]:
        """Sorted places of the outputs whose pairs were published, by pipeline and stage."""
        return {where: np.unique(np.concatenate(parts)) for where, parts in self._pairs.items()}


def read_published(
    settings: ServiceSettings, run_id: str, producer: str | None, since_ms: int
) -> Published:
    """What `producer`, or whoever, has published of a run prepared at `since_ms` (epoch ms)."""
    wanted = (*COUNTED, catalogue.DEAD_LETTER, catalogue.PAIRS)
    consumer = assigned_consumer(settings, "evaluator-history", **{"fetch.min.bytes": 1})
    found = Published()
    try:
        spans: Spans = {}
        for topic in wanted:
            spans.update(spans_since(consumer, topic, since_ms - CLOCKS_APART_MS))
        for name, record in decoded(read_spans(consumer, spans)):
            if record["run_id"] == run_id and producer in (None, record["producer"]):
                found.add(name, record)
    finally:
        consumer.close()
    return found
