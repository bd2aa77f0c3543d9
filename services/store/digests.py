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
    """Number of rows of records before the first offset that the bus still has."""
    found = {}
    for (topic, partition), offset in firsts.items():
        if offset:
            (row,) = engine.rows(
                f"SELECT count() AS n FROM {DATABASE}.{TABLES[topic].name}"
                f" WHERE _partition = {partition} AND _offset < {offset}"
            )
            if int(row["n"]):
                found[topic, partition] = int(row["n"])
    return found


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
