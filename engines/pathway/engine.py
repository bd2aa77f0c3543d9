"""Pathway: `python engine.py PLAN`. Tables are made of the plan's stages.

    kafka.read -> decode -> per stage: flatten, deduplicate, join, groupby -> encode -> kafka.write

Pathway finds what belongs together: a join of tables, a group of rows by key and window, the first
row of each. What an output has in its columns is computed by the shared kinds of stages
(engines/python/stages) from the rows that Pathway has put together. A row is one column, `row`.
"""

import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pathway as pw
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from stages.kinds import Counted, Join, Kept, PerRow, Spec, WindowJoin, windows_of
from stages.lines import Progress, end_with_parent, say
from stages.plan import Plan
from stages.reading import Reading
from stages.records import Row

LOOK_S = 0.2


def dumped(rows: Iterable[Row]) -> tuple[bytes, ...]:
    """Rows as values of a column."""
    return tuple(pickle.dumps(row) for row in rows)


def each(table: pw.Table, function: Callable[..., Any], *columns: str) -> pw.Table:
    """A table of the rows that a function makes of each row."""
    values = [table[column] for column in columns or ("row",)]
    made = table.select(row=pw.apply_with_type(function, tuple[bytes, ...], *values))
    return made.flatten(made.row)


def first(table: pw.Table, *columns: str) -> pw.Table:
    """The first row of each value of these columns."""
    by = pw.make_tuple(*(table[column] for column in columns))
    return table.deduplicate(value=table.row, instance=by, acceptor=lambda _new, _old: False)


class Graph:
    """The tables of a plan."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        self.plan, self.reading = plan, reading
        self.tables = {source["name"]: self._input(topic) for topic, source in plan.inputs.items()}
        for spec in plan.stages:
            self.tables[spec["name"]] = self._stage(spec)
            if plan.is_published(spec):
                self._publish(spec)

    def _input(self, topic: str) -> pw.Table:
        settings = {**self.plan.kafka, "group.id": self.plan.group, "auto.offset.reset": "earliest"}
        records = pw.io.kafka.read(
            settings,
            topic,
            format="raw",
            autocommit_duration_ms=self.plan.settings["batch_ms"],
            with_metadata=True,
        )
        for output in self.plan.copies_of(topic):
            self._write(records.select(pw.this.key, value=pw.this.data), output)

        def decode(data: bytes, metadata: pw.Json) -> tuple[bytes, ...]:
            at = metadata.as_dict()
            appended_ms = at["timestamp_millis"]
            self.reading.read(topic, at["partition"], at["offset"], appended_ms)
            row = self.plan.row_of(topic, data, appended_ms, (at["partition"], at["offset"]))
            return dumped([] if row is None else [row])

        return each(records, decode, "data", "_metadata")

    def _stage(self, spec: Spec) -> pw.Table:
        before = [self.tables[name] for name in spec["reads"]]
        rows = pw.Table.concat_reindex(*before) if len(before) > 1 else before[0]
        kind = self.plan.kind_of(spec)
        if isinstance(kind, PerRow):
            if spec["kind"] in ("copy", "decode"):
                return rows
            return each(rows, lambda data: dumped(kind.add(pickle.loads(data))))
        if isinstance(kind, Join):
            return self._join(rows, kind, lambda row: [row.event_ms], once=True)
        if isinstance(kind, WindowJoin):
            return self._join(rows, kind, lambda row: windows_of(spec["window"], row.event_ms))
        return self._group(rows, kind)

    def _join(
        self, rows: pw.Table, kind: Any, places: Callable[[Row], Iterable[int]], once: bool = False
    ) -> pw.Table:
        """Rows of different inputs at the same key and place: an event time or a window."""
        sides = []
        for name in kind.inputs:

            def of(data: bytes, name: str = name) -> tuple[tuple[str, int], ...]:
                row = pickle.loads(data)
                key = kind.key_of(row)
                return tuple((key, at) for at in places(row)) if row.source == name else ()

            side = self._placed(rows, of)
            sides.append(first(side, "key", "at") if once else side)
        joined = sides[0].select(pw.this.key, pw.this.at, rows=pw.make_tuple(pw.this.row))
        for side in sides[1:]:
            both = joined.join(side, joined.key == side.key, joined.at == side.at)
            joined = both.select(
                joined.key,
                joined.at,
                rows=pw.apply_with_type(
                    lambda rows, row: (*rows, row), tuple[bytes, ...], joined.rows, side.row
                ),
            )
        return each(joined, lambda rows, at: self._made(kind, rows, at), "rows", "at")

    def _group(self, rows: pw.Table, kind: Any) -> pw.Table:
        """Rows of the same key and window, all of which must be there."""

        def of(data: bytes) -> tuple[tuple[str, int], ...]:
            row = pickle.loads(data)
            key = kind.key_of(row)
            if isinstance(kind, Counted):
                if row.source and row.source not in kind.inputs:
                    return ()
                return tuple((key, at) for at in windows_of(kind.spec["window"], row.event_ms))
            newest_ms = row.fields["window_start"]
            ends = range(newest_ms, newest_ms + kind.size_ms, kind.part_ms)
            return tuple((key, kind.parts(at)[0]) for at in ends)

        def identity(data: bytes) -> str:
            row = pickle.loads(data)
            return repr(kind.identity(row) if isinstance(kind, Counted) else row.event_ms)

        placed = self._placed(rows, of)
        named = placed.with_columns(identity=pw.apply_with_type(identity, str, placed.row))
        once = first(named, "key", "at", "identity")
        groups = once.groupby(once.key, once.at).reduce(
            once.key, once.at, rows=pw.reducers.tuple(once.row)
        )
        return each(groups, lambda rows, at: self._made(kind, rows, at), "rows", "at")

    @staticmethod
    def _placed(rows: pw.Table, places: Callable[[bytes], tuple[tuple[str, int], ...]]) -> pw.Table:
        found = rows.select(
            rows.row, place=pw.apply_with_type(places, tuple[tuple[str, int], ...], rows.row)
        ).flatten(pw.this.place)
        return found.select(found.row, key=found.place[0], at=found.place[1])

    @staticmethod
    def _made(kind: Any, rows: tuple[bytes, ...], at: int) -> tuple[bytes, ...]:
        """What a kind publishes of rows that were put together, at that place only."""
        kept, found = Kept(), []
        for data in rows:
            found += kind.add(kept, pickle.loads(data))
        is_joined = isinstance(kind, Join)
        return dumped(row for row in found if is_joined or row.fields["window_start"] == at)

    def _publish(self, spec: Spec) -> None:
        record, key = self.plan.records[spec["record"]], spec["key"]

        def key_of(data: bytes) -> bytes:
            return str(pickle.loads(data).fields[key]).encode()

        def value_of(data: bytes) -> bytes:
            return record.encode(pickle.loads(data).fields)

        rows = self.tables[spec["name"]]
        encoded = rows.select(
            key=pw.apply_with_type(key_of, bytes, rows.row),
            value=pw.apply_with_type(value_of, bytes, rows.row),
        )
        self._write(encoded, self.plan.outputs[spec["name"]])

    def _write(self, table: pw.Table, topic: str) -> None:
        # Keys get the partitions that Java's clients give them.
        linger = str(self.plan.settings["linger_ms"])
        settings = {**self.plan.kafka, "linger.ms": linger, "partitioner": "murmur2_random"}
        pw.io.kafka.write(table, settings, topic, format="raw", key=table.key, value=table.value)


def begin(plan: Plan) -> None:
    """Commit the offsets to begin at: Pathway reads from those of its group."""
    consumer = Consumer({**plan.kafka, "group.id": plan.group, "enable.auto.commit": False})
    places = [TopicPartition(*place) for place in plan.partitions]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def watch(plan: Plan, reading: Reading) -> None:
    """Say when the group has all partitions, and then how far they are read."""
    admin = AdminClient(plan.kafka)
    awaited = {place[:2] for place in plan.partitions}
    while True:
        found = admin.describe_consumer_groups([plan.group])[plan.group].result(10)
        assigned = {
            (at.topic, at.partition)
            for member in found.members
            if member.assignment
            for at in member.assignment.topic_partitions
        }
        if awaited <= assigned:
            break
        time.sleep(LOOK_S)
    say(event="ready", detail={"pathway": pw.__version__})
    consumer = Consumer({**plan.kafka, "group.id": f"{plan.group}.ends"})
    progress = Progress(plan, reading)
    while True:
        for topic, number, _ in plan.partitions:
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1]
            reading.end(topic, number, end)
        progress.tell()
        time.sleep(LOOK_S)


def main() -> None:
    plan = Plan(sys.argv[-1])
    end_with_parent()
    reading = Reading(plan.start_offsets)
    begin(plan)
    Graph(plan, reading)
    threading.Thread(target=watch, args=(plan, reading), daemon=True).start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main()
