"""Writes records of the bus into their tables, and sets aside those that cannot become rows.

A record is set aside before anything after it is written. The broker acknowledges its dead letter
first, so a process that ends in between finds it on the topic after its restart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import structlog
from confluent_kafka import Message
from prometheus_client import Counter

from schemas.catalogue import DEAD_LETTER
from services.runtime.clock import Clock
from services.runtime.events import Events, dead_letter_of
from services.store.batch import batch_blocks
from services.store.blocks import halves
from services.store.inserting import Inserter, RefusedValuesError, as_it_is
from services.store.rollups import ROLLUPS
from services.store.rows import Record
from services.store.tables import TABLES

MAX_REASON: Final = 300
RECORDS = Counter("tidegauge_store_records", "Records projected", ["topic"])
UNUSABLE = Counter("tidegauge_store_unusable_records", "Records moved to dead letters", ["topic"])
DROPPED = Counter("tidegauge_store_dropped_records", "Dead letters that cannot be stored as rows")
log = structlog.get_logger()


class ProjectionError(RuntimeError):
    """Projection cannot continue without losing or repeating records; the text is the reason."""


@dataclass
class Writer:
    """Writes what the projector reads. Not thread-safe.

    kept: positions of dead letters about records that are not projected yet.
    """

    inserter: Inserter
    events: Events
    clock: Clock
    max_rows: int
    kept: frozenset[tuple[str, int, int]] = frozenset()

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        """Write consecutive records of one topic. Raises EngineError, ProjectionError."""
        table = TABLES[topic]
        records = [_record(message) for message in messages]
        batch, blocks = batch_blocks(table, records, self.events.name, self.max_rows)
        self._put_aside((messages[number], reason) for number, reason in batch.unusable)
        self._drop((messages[number], reason) for number, reason in batch.dropped)
        positions = {(topic, number): at for number, at in batch.hidden_positions.items()}

        def refuse(block: pa.Table, reason: str) -> None:
            partition, offset = block["_partition"][0].as_py(), block["_offset"][0].as_py()
            (message,) = (m for m in messages if (m.partition(), m.offset()) == (partition, offset))
            (self._drop if topic == DEAD_LETTER else self._put_aside)([(message, reason)])
            positions[topic, partition] = max(offset + 1, positions.get((topic, partition), 0))

        for block in blocks:
            for taken in list(self._insert(table.name, block, as_it_is, refuse)):
                for rollup in ROLLUPS.get(topic, ()):
                    list(self._insert(rollup.name, taken, rollup.aggregate, refuse))
        self.inserter.write_positions(positions, self.clock())
        RECORDS.labels(topic).inc(len(messages))

    def _insert(
        self,
        table: str,
        block: pa.Table,
        aggregate: Callable[[pa.Table], pa.Table],
        refuse: Callable[[pa.Table, str], None],
    ) -> Iterator[pa.Table]:
        """Insert a block. If the engine rejects its values, bisect it down to the bad record.
        Yields the inserted blocks."""
        try:
            self.inserter.insert(table, block, aggregate)
            yield block
        except RefusedValuesError as error:
            parts = halves(block)
            if parts is None:
                refuse(block, f"ClickHouse refuses its values: {error}"[:MAX_REASON])
                return
            for part in parts:
                yield from self._insert(table, part, aggregate, refuse)

    def _put_aside(self, unusable: Iterable[tuple[Message, str]]) -> None:
        published = False
        for message, reason in unusable:
            UNUSABLE.labels(message.topic()).inc()
            if (message.topic(), message.partition(), message.offset()) not in self.kept:
                self.events.dead_letter(dead_letter_of(message, reason))
                published = True
        if published and (self.events.flush() or self.events.failed):
            raise ProjectionError("The broker did not accept a dead letter in time.")

    def _drop(self, dropped: Iterable[tuple[Message, str]]) -> None:
        """Drop bad dead letters: a dead letter about a dead letter would cause an endless loop."""
        for message, reason in dropped:
            DROPPED.inc()
            where = f"{message.topic()}/{message.partition()}"
            log.warning("dead_letter_dropped", topic=where, offset=message.offset(), reason=reason)


def _record(message: Message) -> Record:
    _kind, stamp = message.timestamp()
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        stamp,
    )
