"""Tables with sums of a raw table, which remain when its rows expire. Pure.

A rollup is projected from the bus like its raw table, by the same process and from the same blocks,
but has its own position. Every row contains the greatest offset that went into it, so a restart
continues after it, whichever of the two inserts was the last. A materialized view cannot guarantee
that: ClickHouse inserts into a table and into its views one after another. A rollup has no
partitions, so a block of one month is one atomic insert there too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from schemas import catalogue

LATENCY_KEY = ("run_id", "pipeline", "stage", "definition", "phase", "minute", "latency_ms")
PLACE_KEY = ("_topic", "_partition")


@dataclass(frozen=True)
class Rollup:
    """One rollup. aggregate: converts a block of the raw table's rows to the rollup's rows."""

    name: str
    aggregate: Callable[[pa.Table], pa.Table]


def latency_minutes(block: pa.Table) -> pa.Table:
    """Count of every millisecond of latency per minute of output time: sums, so still exact."""
    minute = pc.floor_temporal(block["second"], unit="minute").cast(pa.timestamp("s", tz="UTC"))
    summed = (
        block.append_column("minute", minute)
        .group_by([*LATENCY_KEY, *PLACE_KEY])
        .aggregate([("count", "sum"), ("_offset", "max")])
    )
    names = {"count_sum": "count", "_offset_max": "_offset"}
    return summed.rename_columns([names.get(name, name) for name in summed.column_names])


ROLLUPS: Mapping[str, tuple[Rollup, ...]] = MappingProxyType(
    {catalogue.LATENCY: (Rollup("latency_minutes", latency_minutes),)}
)


def fresh(block: pa.Table, done: Mapping[tuple[str, int], int]) -> pa.Table:
    """Rows of a block that a table does not have yet. done: its next offset by topic and partition.

    All rows of a block are of one topic.
    """
    topic = block["_topic"][0].as_py()
    for (name, partition), offset in done.items():
        if name == topic:
            seen = pc.and_(
                pc.equal(block["_partition"], partition), pc.less(block["_offset"], offset)
            )
            if pc.any(seen).as_py():
                block = block.filter(pc.invert(seen))
    return block
