"""Pathway: `python engine.py PLAN`. Builds tables from the plan's stages.

    kafka.read -> decode -> per stage: select, groupby, reduce, flatten -> encode -> kafka.write

Pathway groups rows by key and keeps a state for each group, with a reducer computed by the shared
kinds of stages (engines/python/stages). A row is one column, `row`.
"""

import contextlib
import operator
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pathway as pw
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from stages.kinds import Kept, Keyed, PerRow, Spec
from stages.lines import Progress, end_with_parent, say
from stages.plan import Plan
from stages.reading import Reading
from stages.records import Row

LOOK_S = 0.2
APPENDED = operator.attrgetter("appended_ms")
State = tuple[bytes, tuple[bytes, ...]]  # the state of a key, and the latest outputs


def dumped(rows: Iterable[Row]) -> tuple[bytes, ...]:
    """Rows as values of a column."""
    return tuple(pickle.dumps(row) for row in rows)


def each(table: pw.Table, function: Callable[..., Any], *columns: str) -> pw.Table:
    """A table of the outputs of a function for each row."""
    values = [table[column] for column in columns or ("row",)]
    made = table.select(row=pw.apply_with_type(function, tuple[bytes, ...], *values))
    return made.flatten(made.row)


def kept_by_key(rows: pw.Table, kind: Keyed) -> pw.Table:
    """The outputs of a kind. Its state for a key is the state of that key's group. Each state
    change is a row of a stream, with the outputs of that change."""

    def takes(data: bytes) -> bool:
        return kind.takes(pickle.loads(data))

    def key_of(data: bytes) -> str:
        return kind.key_of(pickle.loads(data))

    def add(state: State | None, changes: list[tuple[list[bytes], int]]) -> State:
        kept = Kept(pickle.loads(state[0]) if state else {})
        new = sorted((pickle.loads(data) for (data,), _ in changes), key=APPENDED)
        made = dumped(row for one in new for row in kind.add(kept, one))
        return pickle.dumps(dict(kept)), made

    taken = rows.filter(pw.apply_with_type(takes, bool, rows.row))
    keyed = taken.select(taken.row, key=pw.apply_with_type(key_of, str, taken.row))
    groups = keyed.groupby(keyed.key).reduce(state=pw.reducers.stateful_many(add)(keyed.row))
    states = groups.select(state=pw.declare_type(State, groups.state))
    changes = states.select(row=states.state[1]).to_stream()
    return changes.filter(changes.is_upsert).select(pw.this.row).flatten(pw.this.row)


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
        if spec["kind"] in ("copy", "decode"):
            return rows
        if isinstance(kind, PerRow):
            return each(rows, lambda data: dumped(kind.add(pickle.loads(data))))
        return kept_by_key(rows, kind)

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
        # Use the partitioner of Java clients.
        linger = str(self.plan.settings["linger_ms"])
        settings = {**self.plan.kafka, "linger.ms": linger, "partitioner": "murmur2_random"}
        pw.io.kafka.write(table, settings, topic, format="raw", key=table.key, value=table.value)


def begin(plan: Plan) -> None:
    """Commit the start offsets: Pathway starts from those of its group."""
    consumer = Consumer({**plan.kafka, "group.id": plan.group, "enable.auto.commit": False})
    places = [TopicPartition(*place) for place in plan.partitions]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def assigned(admin: AdminClient, group: str) -> set[tuple[str, int]]:
    """The partitions assigned to a group; none if the broker does not answer."""
    try:
        found = admin.describe_consumer_groups([group])[group].result(10)
    except (KafkaException, TimeoutError):
        return set()
    return {
        (at.topic, at.partition)
        for member in found.members
        if member.assignment
        for at in member.assignment.topic_partitions
    }


def watch(plan: Plan, reading: Reading) -> None:
    """Report when all partitions are assigned to the group, and then the progress. Goes on while
    the broker is down."""
    admin = AdminClient(plan.kafka)
    awaited = {place[:2] for place in plan.partitions}
    while not awaited <= assigned(admin, plan.group):
        time.sleep(LOOK_S)
    say(event="ready", detail={"pathway": pw.__version__})
    consumer = Consumer({**plan.kafka, "group.id": f"{plan.group}.ends"})
    progress = Progress(plan, reading)
    while True:
        with contextlib.suppress(KafkaException):
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
