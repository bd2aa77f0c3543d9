"""All stages of a plan in one thread: a record in, the records to publish out.

For engines that pass records to a program and leave the processing to it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from stages.closing import Closed
from stages.kinds import Address, Kept, PerRow, Spec
from stages.plan import Message, Plan
from stages.records import Row

Published = tuple[Spec, Row]  # the row of a published stage that is not a copy
MOST_KEYS = 200_000
IDLE_MS = 300_000


class InMemory(OrderedDict[Address, Kept]):
    """State in memory of the most recently used keys, each for `kept_ms` after its last row."""

    def __init__(self, kept_ms: int, most_keys: int = MOST_KEYS) -> None:
        super().__init__()
        self._most_keys = most_keys
        self._kept_ms = kept_ms
        self._used_ms: dict[Address, float] = {}

    def of(self, key: Address, now_ms: float) -> Kept:
        """The state of a key that has a row appended now."""
        kept = self.setdefault(key, Kept())
        self.move_to_end(key)
        self._used_ms[key] = now_ms
        if len(self) > self._most_keys:
            self._drop()
        return kept

    def expire(self, reached_ms: float, open_keys: Collection[Address]) -> None:
        """Drop the keys without a recent row, up to the first with an open window."""
        while self:
            key = next(iter(self))
            if key in open_keys or self._used_ms[key] >= reached_ms - self._kept_ms:
                return
            self._drop()

    def _drop(self) -> None:
        del self._used_ms[self.popitem(last=False)[0]]


class Stage:
    """A stage with its state, in memory, and the times at which to check keys."""

    def __init__(self, spec: Spec, kind: Any) -> None:
        self.spec, self.kind = spec, kind
        self.name, self.reads = spec["name"], spec["reads"]
        self._states = InMemory(IDLE_MS + getattr(kind, "size_ms", 0))
        self._dues: list[tuple[float, Address]] = []
        self._awaited: set[Address] = set()

    def add(self, row: Row, now_ms: float) -> list[Row]:
        """The rows due after one more row."""
        if isinstance(self.kind, PerRow):
            return self.kind.add(row)
        if not self.kind.takes(row):
            return []
        key = self.kind.address_of(row)
        found: list[Row] = self.kind.add(self._states.of(key, now_ms), row)
        if isinstance(self.kind, Closed) and key not in self._awaited:
            self.look_later(key, now_ms)
        return found

    def look_later(self, key: Address, now_ms: float) -> None:
        """Schedule a check of a key for when its next window may be due."""
        due_ms = self.kind.due_ms(self._states.of(key, now_ms), now_ms)
        if due_ms is not None:
            self._awaited.add(key)
            heapq.heappush(self._dues, (due_ms, key))

    def due(self, reached_ms: float) -> list[Row]:
        """The rows due by time alone. Drops the state of keys without recent rows."""
        self._states.expire(reached_ms, self._awaited)
        found = []
        while self._dues and self._dues[0][0] < reached_ms:
            _, key = heapq.heappop(self._dues)
            self._awaited.discard(key)
            found += self.kind.due(self._states.of(key, reached_ms), reached_ms)
            self.look_later(key, reached_ms)
        return found


class Flow:
    """All stages of a plan, in order; rows flow from each to its readers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.stages = [Stage(spec, plan.kind_of(spec)) for spec in plan.stages]

    def read(
        self,
        topic: str,
        key: Any,
        value: bytes | None,
        appended_ms: int,
        place: tuple[int, int] = (-1, -1),
    ) -> list[Message]:
        """The outputs due after one more record. Undecodable records are only copied. place:
        partition and offset."""
        found: list[Message] = []
        if value is not None:
            found = [(output, key, value) for output in self._plan.copies_of(topic)]
        row = self._plan.row_of(topic, value, appended_ms, place)
        if row is None:
            return found
        return found + [self._plan.message_of(*each) for each in self.rows(row)]

    def tick(self, reached_ms: float) -> list[Message]:
        """The outputs due by time alone. reached_ms: see `Reading`."""
        return [self._plan.message_of(*each) for each in self.due(reached_ms)]

    def rows(self, row: Row) -> list[Published]:
        """The rows due after one more row of an input, except copies."""
        return self._flow({row.source: [row]}, row.appended_ms)

    def due(self, reached_ms: float) -> list[Published]:
        """The rows due by time alone. reached_ms: see `Reading`."""
        found: list[Published] = []
        for stage in self.stages:
            rows = stage.due(reached_ms)
            if rows:
                found += self._published(stage, rows)
                found += self._flow({stage.name: rows}, reached_ms)
        return found

    def _flow(self, rows: dict[str, list[Row]], now_ms: float) -> list[Published]:
        found: list[Published] = []
        for stage in self.stages:
            due: list[Row] = []
            for name in stage.reads:
                for row in rows.get(name, ()):
                    due += stage.add(row, now_ms)
            if due:
                rows[stage.name] = due
                found += self._published(stage, due)
        return found

    def _published(self, stage: Stage, rows: list[Row]) -> list[Published]:
        return [(stage.spec, row) for row in rows] if self._plan.is_published(stage.spec) else []
