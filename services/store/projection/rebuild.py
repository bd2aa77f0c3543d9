"""Drops the projection and rebuilds it from the bus, which contains everything in it.

The admin requests it over HTTP, and the projecting thread does it between two batches. A process
that ends in the middle leaves incomplete tables, and continues to project after its restart: the
table of positions is dropped first, so that no other table is taken for complete.

A digest of every table before and after shows that nothing changed. Tables with the same rows have
the same digest, regardless of the order of rows and of parts. A missing, repeated or different row
changes it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from services.store.engine import SqlEngine
from services.store.engines.schema import ROLLUPS, bring_up
from services.store.projection.inserting import Place
from services.store.projection.projector import Projector
from services.store.settings import StoreSettings
from services.store.tables import DATABASE, POSITIONS, TABLES

IDLE, WAITING, RUNNING, DONE, REFUSED = "idle", "waiting", "running", "done", "refused"


@dataclass(frozen=True)
class Digest:
    """rows: number of rows; for a rollup, after summing equal keys. value: sum of the rows'
    hashes."""

    rows: int
    value: int


def read_digests(engine: SqlEngine, before: Mapping[Place, int]) -> dict[str, Digest]:
    """Digest of every table, for rows of records before these offsets. Raises EngineError."""
    return dict(_digests(engine, before))


def rows_before(engine: SqlEngine, firsts: Mapping[Place, int]) -> dict[Place, int]:
    """Number of rows of records before the first offset that the bus still has, in the raw table
    or in a rollup, whose rows outlive those of the raw table: the greater number."""
    result = {}
    for (topic, partition), offset in firsts.items():
        if offset:
            names = [f"{rollup.name} FINAL" for rollup in ROLLUPS.get(topic, ())]
            condition = f"_partition = {partition} AND _offset < {offset}"
            counts = [_count(engine, name, condition) for name in (TABLES[topic].name, *names)]
            if max(counts):
                result[topic, partition] = max(counts)
    return result


def _count(engine: SqlEngine, table: str, condition: str) -> int:
    (row,) = engine.rows(f"SELECT count() AS n FROM {DATABASE}.{table} WHERE {condition}")
    return int(row["n"])


def _digests(engine: SqlEngine, before: Mapping[Place, int]) -> Iterator[tuple[str, Digest]]:
    for topic, table in TABLES.items():
        places = [
            f"(_partition = {partition} AND _offset < {offset})"
            for (name, partition), offset in sorted(before.items())
            if name == topic
        ]
        yield table.name, _digest(engine, table.name, " OR ".join(places) or "false")
        for rollup in ROLLUPS.get(topic, ()):
            yield rollup.name, _digest(engine, f"{rollup.name} FINAL", "true")


def _digest(engine: SqlEngine, table: str, condition: str) -> Digest:
    (row,) = engine.rows(
        "SELECT count() AS rows, toString(sum(cityHash64(tuple(*)))) AS value"
        f" FROM {DATABASE}.{table} WHERE {condition}"
    )
    return Digest(int(row["rows"]), int(row["value"]))


@dataclass(frozen=True)
class RebuildStatus:
    """Status of a rebuild. sentence: for the admin. tables: rows before and after."""

    state: str = IDLE
    sentence: str = ""
    equal: bool = False
    tables: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The response over HTTP."""
        return asdict(self)


class Rebuilds:
    """Passes requests for a rebuild to the projecting thread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._force: bool | None = None
        self.status = RebuildStatus()

    def ask(self, force: bool) -> RebuildStatus:
        """Request a rebuild, unless one is running. force: even if the bus no longer has all
        records."""
        with self._lock:
            if self.status.state not in (WAITING, RUNNING):
                self._force, self.status = force, RebuildStatus(WAITING)
            return self.status

    def tick(
        self,
        engine: SqlEngine,
        projector: Projector,
        settings: StoreSettings,
        stopped: Callable[[], bool],
    ) -> None:
        """Do the requested rebuild, if any. Called by the projecting thread. Raises what `rebuild`
        does."""
        with self._lock:
            force, self._force = self._force, None
        if force is not None:
            self.status = RebuildStatus(RUNNING)
            self.status = rebuild(engine, projector, settings, force, stopped)


def rebuild(
    engine: SqlEngine,
    projector: Projector,
    settings: StoreSettings,
    force: bool,
    stopped: Callable[[], bool],
) -> RebuildStatus:
    """Rebuild and compare. Without force it refuses, and changes nothing, if rows would be lost."""
    lost = rows_before(engine, projector.firsts())
    if lost and not force:
        return RebuildStatus(
            REFUSED, f"{_listed(lost)}. A rebuild would lose them; force it to do so."
        )
    until = projector.positions()
    before = read_digests(engine, until)
    engine.execute(drop_statements())
    bring_up(engine, settings)
    projector.replay(until, stopped)
    if stopped():
        return RebuildStatus(
            REFUSED, "The store was stopped; the rebuild continues when it starts again."
        )
    return verdict(before, read_digests(engine, until), lost)


def drop_statements() -> list[str]:
    """Statements that empty the projection, in the required order."""
    names = [POSITIONS]
    for topic, table in TABLES.items():
        names += [table.name, *(rollup.name for rollup in ROLLUPS.get(topic, ()))]
    return [f"DROP TABLE IF EXISTS {DATABASE}.{name} SYNC" for name in names]


def verdict(
    before: Mapping[str, Digest], after: Mapping[str, Digest], lost: Mapping[Place, int]
) -> RebuildStatus:
    """The result of a comparison."""
    tables = tuple(
        {
            "table": name,
            "rows_before": digest.rows,
            "rows_after": after[name].rows,
            "equal": digest == after[name],
        }
        for name, digest in before.items()
    )
    different = [str(table["table"]) for table in tables if not table["equal"]]
    if not different:
        return RebuildStatus(DONE, "Every table holds the same rows as before.", True, tables)
    reason = f" {_listed(lost)}." if lost else " Expired rows may have been restored."
    return RebuildStatus(DONE, f"{', '.join(different)}: not as before.{reason}", False, tables)


def _listed(lost: Mapping[Place, int]) -> str:
    listed = ", ".join(f"{n} rows of {topic}/{number}" for (topic, number), n in lost.items())
    return f"The bus no longer has the records of {listed}"
