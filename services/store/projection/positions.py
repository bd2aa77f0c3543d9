"""The next offset to project of each partition, read from the projection itself.

Offsets are not committed anywhere else, so positions and rows cannot disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from services.store.engine import SqlEngine
from services.store.engines.schema import ROLLUPS
from services.store.tables import DATABASE, POSITION_COLUMNS, POSITIONS, TABLES

Place = tuple[str, int]


def read_positions(engine: SqlEngine) -> dict[Place, int]:
    """Next offset to project, by (topic, partition). Partitions without an entry start at their
    beginning."""
    rows = engine.rows(f"SELECT topic, partition, next_offset FROM {DATABASE}.projection_progress")
    return {(row["topic"], int(row["partition"])): int(row["next_offset"]) for row in rows}


def read_done(engine: SqlEngine) -> dict[str, dict[Place, int]]:
    """Next offset by table and partition, for topics with several tables.

    They differ if a process ended between two inserts, or if a table is new.
    """
    done: dict[str, dict[Place, int]] = {}
    for topic, rollups in ROLLUPS.items():
        for table in (TABLES[topic].name, *(rollup.name for rollup in rollups)):
            rows = engine.rows(
                f"SELECT _topic, _partition, max(_offset) + 1 AS next_offset"
                f" FROM {DATABASE}.{table} GROUP BY _topic, _partition"
            )
            done[table] = {
                (row["_topic"], int(row["_partition"])): int(row["next_offset"]) for row in rows
            }
    return done


def table_done(engine: SqlEngine, table: str, block: pa.Table) -> dict[Place, int]:
    """Next offset of one table in each partition that occurs in a block; all rows are of one
    topic."""
    topic = block["_topic"][0].as_py()
    places = ", ".join(str(number) for number in sorted(set(block["_partition"].to_pylist())))
    rows = engine.rows(
        f"SELECT _partition, max(_offset) + 1 AS next_offset FROM {DATABASE}.{table}"
        f" WHERE _topic = '{topic}' AND _partition IN ({places}) GROUP BY _partition"
    )
    return {(topic, int(row["_partition"])): int(row["next_offset"]) for row in rows}


def write_positions(engine: SqlEngine, positions: dict[Place, int], now_ms: int) -> None:
    """Record positions that no row shows."""
    if not positions:
        return
    columns = list(
        zip(*((*place, offset, now_ms) for place, offset in positions.items()), strict=True)
    )
    arrays = [
        pa.array(values, column.type)
        for values, column in zip(columns, POSITION_COLUMNS, strict=True)
    ]
    engine.insert(POSITIONS, pa.Table.from_arrays(arrays, schema=POSITION_COLUMNS))


def kept_dead_letters(
    engine: SqlEngine, positions: dict[Place, int], producer: str
) -> set[tuple[str, int, int]]:
    """(topic, partition, offset) of the store's dead letters about records not projected yet.

    They were published by a process that ended before it recorded the positions after them.
    """
    columns = "producer, topic, `partition`, `offset`"
    rows = engine.rows(f"SELECT DISTINCT {columns} FROM {DATABASE}.dead_letter")
    rows = [row for row in rows if row["producer"] == producer]
    places = ((row["topic"], int(row["partition"]), int(row["offset"])) for row in rows)
    return {place for place in places if place[2] >= positions.get(place[:2], 0)}


def starts(positions: dict[Place, int], bounds: dict[Place, tuple[int, int]]) -> dict[Place, int]:
    """Offset to start from in each partition, given its first and its end offset on the bus.

    If retention deleted records that were not projected (see `lost_before`), it is the first
    remaining offset. Raises ValueError with one sentence if a partition ends before its projected
    position.
    """
    for (topic, partition), (_low, end) in sorted(bounds.items()):
        position = positions.get((topic, partition), 0)
        if end < position:
            raise ValueError(
                f"{topic}/{partition} ends at offset {end}, but records before {position} were "
                "projected: this is another bus. Give each bus a --data folder (or a ClickHouse "
                "server) of its own."
            )
    return {place: max(positions.get(place, 0), low) for place, (low, _end) in bounds.items()}


@dataclass(frozen=True)
class Lost:
    """Offsets of a partition that retention deleted before they were projected: from `first` up to
    but excluding `end`."""

    place: Place
    first: int
    end: int

    @property
    def records(self) -> int:
        """Number of these offsets."""
        return self.end - self.first


def lost_before(positions: Mapping[Place, int], firsts: Mapping[Place, int]) -> list[Lost]:
    """Deleted offsets, given the positions and the first offsets on the bus."""
    return [
        Lost(place, positions.get(place, 0), first)
        for place, first in sorted(firsts.items())
        if positions.get(place, 0) < first
    ]
