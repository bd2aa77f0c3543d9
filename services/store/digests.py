"""A digest of every table of the projection, for comparison before and after a rebuild.

Tables with the same rows have the same digest, regardless of the order of rows and of parts. A
missing, repeated or different row changes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.store.engine import Engine
from services.store.positions import Place
from services.store.rollups import ROLLUPS
from services.store.tables import DATABASE, TABLES


@dataclass(frozen=True)
class Digest:
    """rows: number of rows; for a rollup, after summing equal keys. value: sum of the rows'
    hashes."""

    rows: int
    value: int


def read_digests(engine: Engine, before: Mapping[Place, int]) -> dict[str, Digest]:
    """Digest of every table, for rows of records before these offsets. Raises EngineError."""
    return dict(_digests(engine, before))


def rows_before(engine: Engine, firsts: Mapping[Place, int]) -> dict[Place, int]:
    """Number of rows of records before the first offset that the bus still has, in the raw table
    or in a rollup, whose rows outlive those of the raw table: the greater number."""
    found = {}
    for (topic, partition), offset in firsts.items():
        if offset:
            names = [f"{rollup.name} FINAL" for rollup in ROLLUPS.get(topic, ())]
            condition = f"_partition = {partition} AND _offset < {offset}"
            counts = [_count(engine, name, condition) for name in (TABLES[topic].name, *names)]
            if max(counts):
                found[topic, partition] = max(counts)
    return found


def _count(engine: Engine, table: str, condition: str) -> int:
    (row,) = engine.rows(f"SELECT count() AS n FROM {DATABASE}.{table} WHERE {condition}")
    return int(row["n"])


def _digests(engine: Engine, before: Mapping[Place, int]) -> Iterator[tuple[str, Digest]]:
    for topic, table in TABLES.items():
        places = [
            f"(_partition = {partition} AND _offset < {offset})"
            for (name, partition), offset in sorted(before.items())
            if name == topic
        ]
        yield table.name, _digest(engine, table.name, " OR ".join(places) or "false")
        for rollup in ROLLUPS.get(topic, ()):
            yield rollup.name, _digest(engine, f"{rollup.name} FINAL", "true")


def _digest(engine: Engine, table: str, condition: str) -> Digest:
    (row,) = engine.rows(
        "SELECT count() AS rows, toString(sum(cityHash64(tuple(*)))) AS value"
        f" FROM {DATABASE}.{table} WHERE {condition}"
    )
    return Digest(int(row["rows"]), int(row["value"]))
