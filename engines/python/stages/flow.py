"""All stages of a plan in one thread: a record in, the records to publish out.

For engines that pass records to a program and leave the processing to it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

from stages.closing import Closed
from stages.kinds import Kept, PerRow, Spec
from stages.plan import Message, Plan
from stages.records import Row

MOST_KEYS = 200_000
IDLE_MS = 300_000


class InMemory(OrderedDict[str, Kept]):
    """State in memory of the most recently used keys, each for `kept_ms` after its last row."""

    def __init__(self, kept_ms: int) -> None:
        super().__init__()
        self._kept_ms = kept_ms
        self._used_ms: dict[str, float] = {}

    def of(self, key: str, now_ms: float) -> Kept:
        """The state of a key that has a row appended now."""
        kept = self.setdefault(key, Kept())
        self.move_to_end(key)
        self._used_ms[key] = now_ms
        if len(self) > MOST_KEYS:
            self._drop()
        return kept

    def expire(self, reached_ms: float, open_keys: Collection[str]) -> None:
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
        self._states = InMemory(IDLE_MS + getattr(kind, "size_ms", 0))
        self._dues: list[tuple[float, str]] = []
        self._awaited: set[str] = set()

    def add(self, row: Row, now_ms: float) -> list[Row]:
        """The rows due after one more row."""
        if isinstance(self.kind, PerRow):
            return self.kind.add(row)
        if not self.kind.takes(row):
            return []
        key = self.kind.key_of(row)
        found: list[Row] = self.kind.add(self._states.of(key, now_ms), row)
        if isinstance(self.kind, Closed) and key not in self._awaited:
            self.look_later(key, now_ms)
        return found

    def look_later(self, key: str, now_ms: float) -> None:
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
        return found + self._flow({row.source: [row]}, appended_ms)

    def tick(self, reached_ms: float) -> list[Message]:
        """The outputs due by time alone. reached_ms: see `Reading`."""
        found: list[Message] = []
        for stage in self.stages:
            rows = stage.due(reached_ms)
            if rows:
                found += self._messages(stage.spec, rows)
                found += self._flow({stage.spec["name"]: rows}, reached_ms)
        return found

    def _flow(self, rows: dict[str, list[Row]], now_ms: float) -> list[Message]:
        messages: list[Message] = []
        for stage in self.stages:
            before = [row for name in stage.spec["reads"] for row in rows.get(name, ())]
            if before:
                found = [row for one in before for row in stage.add(one, now_ms)]
                rows.setdefault(stage.spec["name"], []).extend(found)
                messages += self._messages(stage.spec, found)
        return messages

    def _messages(self, spec: Spec, rows: Iterable[Row]) -> list[Message]:
        if not self._plan.is_published(spec):
            return []
        return [self._plan.message_of(spec, row) for row in rows]
