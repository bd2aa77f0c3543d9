"""transformWithState around a pure function: state of one key in, output rows out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import StructType

from services.spark_pipeline.stages.state.columns import Remembered
from services.spark_pipeline.stages.state.memory import Layout, Memory, Place, forget, remember

Rule = Callable[[Memory, list[Place]], Iterable[tuple[object, ...]]]


def with_memory(
    rows: DataFrame,
    group: Sequence[str],
    remembered: Remembered,
    rule: Rule,
    fields: Sequence[str],
    *,
    keep_s: int,
) -> DataFrame:
    """Input rows → `group` and `fields` of the rows that `rule` returns.

    fields: `NAME TYPE`. keep_s: how long records are kept, behind the key's newest event time. The
    state is bounded without watermark or timers, and an idle key keeps at most what it had.
    """
    kept = rows.select(
        *group, *(each.alias(f"v{place}") for place, each in enumerate(remembered.columns))
    )
    schema, made = kept.schema, StructType.fromDDL(", ".join(fields))
    state = StructType(schema.fields[len(group) :])
    return kept.groupBy(*group).transformWithState(
        statefulProcessor=Remembering(
            rule, remembered.layout, state, group=list(group), names=made.names, keep_s=keep_s
        ),
        outputStructType=StructType([*schema.fields[: len(group)], *made.fields]),
        outputMode="Update",
        timeMode="None",
    )


class Remembering(StatefulProcessor):  # type: ignore[misc]  # pyspark leaves it untyped
    """Reads the memory of a key, adds its new records, publishes the rows of the rule, and writes
    the memory back: two calls to the state store per key and batch."""

    def __init__(
        self,
        rule: Rule,
        layout: Layout,
        state: StructType,
        *,
        group: list[str],
        names: list[str],
        keep_s: int,
    ) -> None:
        self._rule = rule
        self._layout = layout
        self._schema = state
        self._group = group
        self._names = names
        self._keep_ms = 1000 * keep_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: one row per place."""
        self._state: ListState = handle.getListState("records", self._schema)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """The output rows of one key after one batch."""
        layout, grouped = self._layout, len(self._group)
        memory: Memory = {row[: layout.place]: row for row in map(tuple, self._state.get())}
        new = (tuple(row)[grouped:] for row in rows)
        found = list(self._rule(memory, remember(memory, new, layout, self._keep_ms)))
        forget(memory, self._keep_ms)
        self._state.put(list(memory.values()))
        head = dict(zip(self._group, key, strict=True))
        for fields in found:
            yield Row(**head, **dict(zip(self._names, fields, strict=True)))

    def close(self) -> None:
        """Nothing to close."""
