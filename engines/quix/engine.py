"""Quix Streams: `python engine.py PLAN`. Builds StreamingDataFrames from the plan's stages.

    topic -> apply decode -> concat -> per stage: apply, or group_by and apply(stateful) -> to_topic

The kinds of stages are computed by engines/python/stages. Quix Streams reads with a consumer group,
keeps their state in RocksDB with a changelog topic, repartitions rows whose message key is not the
stage's (`group_by`), and commits. Its state belongs to the message key: the state of each key and
window of a stage is a separate value in it.
"""

import sys
import time
from collections.abc import Iterator, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application
from quixstreams import __version__ as version
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.kafka.configuration import ConnectionConfig
from quixstreams.models import Deserializer, Serializer
from quixstreams.models.topics import TopicAdmin, TopicManager
from quixstreams.state import State
from stages.kinds import Keyed, PerRow, Spec
from stages.lines import Progress, end_with_parent, say
from stages.packing import packed, unpacked
from stages.plan import Plan
from stages.reading import Reading
from stages.records import Row

IDLE_FOR = timedelta(minutes=5)
LOOK_S = 0.2


class Names(TopicManager):
    """Names of internal topics, which start with the group."""

    def _internal_name(self, topic_type: str, topic_name: str | None, suffix: str) -> str:
        name = self._format_nested_name(topic_name or "").removeprefix(self._consumer_group)
        return f"{self._consumer_group}.{topic_type}.{name}.{suffix}".replace("..", ".")


class RowSerializer(Serializer):
    """Serializes rows for repartitioning."""

    def __call__(self, value: Any, **_context: Any) -> bytes:
        return packed(value)


class RowDeserializer(Deserializer):
    """Deserializes them."""

    def __call__(self, value: bytes, **_context: Any) -> Any:
        return unpacked(value)


class RowEncoder(Serializer):
    """Encodes rows as the records of an output."""

    def __init__(self, plan: Plan, spec: Spec) -> None:
        self._record = plan.records[spec["record"]]

    def __call__(self, value: Row, **_context: Any) -> bytes:
        return self._record.encode(value.fields)


class KeptInState(MutableMapping[int, Any]):
    """State of a stage for one key, stored in the state of the message key. kept_for: how long a
    value is kept after its last change."""

    def __init__(self, state: State, name: str, kept_for: timedelta) -> None:
        self._state, self._name, self._kept_for = state, name, kept_for

    def get(self, at: int, default: Any = None) -> Any:
        value = self._state.get_bytes(f"{self._name}/{at}")
        return default if value is None else unpacked(value)

    def __getitem__(self, at: int) -> Any:
        return self.get(at)

    def __contains__(self, at: object) -> bool:
        return self._state.exists(f"{self._name}/{at}")

    def __setitem__(self, at: int, value: Any) -> None:
        self._state.set_bytes(f"{self._name}/{at}", packed(value), ttl=self._kept_for)

    def __delitem__(self, at: int) -> None:
        self._state.delete(f"{self._name}/{at}")

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError("state of Quix Streams has no list of its keys")

    def __len__(self) -> int:
        raise NotImplementedError("state of Quix Streams has no list of its keys")


class Flow:
    """The dataframes of a plan, each with the columns that its messages are keyed by."""

    def __init__(self, plan: Plan, app: Application) -> None:
        self.plan, self.app = plan, app
        self.by_name: dict[str, StreamingDataFrame] = {}
        self.keyed_by: dict[str, frozenset[str]] = {}
        for topic, source in plan.inputs.items():
            self._input(topic, source)
        for spec in plan.stages:
            self._stage(spec)
            if plan.is_published(spec):
                self._publish(spec)

    def _input(self, topic: str, source: Spec) -> None:
        raw = {"value_deserializer": "bytes", "key_deserializer": "bytes"}
        messages = self.app.dataframe(self.app.topic(topic, **raw))
        for output in self.plan.copies_of(topic):
            copied = messages.filter(lambda value: value is not None)
            copied.to_topic(self._output(output))

        def decode(value: bytes | None, _key: Any, appended_ms: int, _headers: Any) -> Row | None:
            return self.plan.row_of(topic, value, appended_ms)

        rows = messages.apply(decode, metadata=True)
        self.by_name[source["name"]] = rows.filter(lambda row: row is not None)
        self.keyed_by[source["name"]] = frozenset([source["key"]])

    def _stage(self, spec: Spec) -> None:
        name, kind = spec["name"], self.plan.kind_of(spec)
        rows, keyed_by = self._read(spec)
        if isinstance(kind, PerRow):
            if spec["kind"] not in ("copy", "decode"):
                rows = rows.apply(kind.add, expand=True)
        else:
            rows = rows.filter(kind.takes)
            if not keyed_by or not keyed_by <= set(spec["keys"]):
                codec = {
                    "value_serializer": RowSerializer(),
                    "value_deserializer": RowDeserializer(),
                }
                rows = rows.group_by(
                    kind.key_of, name, key_serializer="str", key_deserializer="str", **codec
                )
                keyed_by = frozenset(spec["keys"])
            rows = rows.apply(self._adding(name, kind), stateful=True, expand=True)
        self.by_name[name], self.keyed_by[name] = rows, keyed_by

    @staticmethod
    def _adding(name: str, kind: Keyed) -> Any:
        kept_for = IDLE_FOR + timedelta(milliseconds=kind.size_ms)

        def add(row: Row, state: State) -> list[Row]:
            return kind.add(KeptInState(state, f"{name}/{kind.key_of(row)}", kept_for), row)

        return add

    def _read(self, spec: Spec) -> tuple[StreamingDataFrame, frozenset[str]]:
        """The rows that a stage reads; those of several inputs in one dataframe, built once."""
        names = tuple(spec["reads"])
        together = "+".join(names)
        if together not in self.by_name:
            rows = self.by_name[names[0]]
            for name in names[1:]:
                rows = rows.concat(self.by_name[name])
            self.by_name[together] = rows
            keys = {self.keyed_by[name] for name in names}
            self.keyed_by[together] = keys.pop() if len(keys) == 1 else frozenset()
        return self.by_name[together], self.keyed_by[together]

    def _publish(self, spec: Spec) -> None:
        topic, key = self.plan.outputs[spec["name"]], spec["key"]
        encode = RowEncoder(self.plan, spec)
        output = self.app.topic(topic, value_serializer=encode, key_serializer="str")
        # A separate branch: to_topic changes the dataframe that it is called on.
        rows = self.by_name[spec["name"]].apply(lambda row: row)
        rows.to_topic(output, key=lambda row: str(row.fields[key]))

    def _output(self, topic: str) -> Any:
        return self.app.topic(topic, value_serializer="bytes", key_serializer="bytes")


def begin(plan: Plan) -> None:
    """Commit the start offsets unless the group has committed some already."""
    consumer = Consumer({**plan.kafka, "group.id": plan.group, "enable.auto.commit": False})
    places = [TopicPartition(*place) for place in plan.partitions]
    found = consumer.committed([TopicPartition(at.topic, at.partition) for at in places], 30)
    new = [at for at, known in zip(places, found, strict=True) if known.offset < 0]
    if new:
        consumer.commit(offsets=new, asynchronous=False)
    consumer.close()


class Watch:
    """Reports when the inputs are read, and the progress."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        self._reading, self._progress = reading, Progress(plan, reading)
        self._awaited = {place[:2] for place in plan.partitions}
        self._looked_s = 0.0

    def look(self, app: Application) -> None:
        """Called by the application between records, once its state is recovered."""
        if time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        consumer = app._consumer
        places = self._reading.ends
        assigned = [at for at in consumer.assignment() if (at.topic, at.partition) in places]
        for at in assigned:
            end = consumer.get_watermark_offsets(at, cached=True)[1]
            self._reading.end(at.topic, at.partition, end)
        if self._awaited and self._awaited <= {(at.topic, at.partition) for at in assigned}:
            self._awaited = set()
            say(event="ready", detail={"quixstreams": version})
        if not self._awaited:
            self._progress.tell()


def main() -> None:
    plan = Plan(sys.argv[-1])
    end_with_parent()
    begin(plan)
    settings, reading = plan.settings, Reading(plan.start_offsets)
    connection = ConnectionConfig.from_librdkafka_dict(plan.kafka, ignore_extras=True)

    def processed(topic: str, partition: int, offset: int) -> None:
        if topic in plan.start_offsets:
            reading.read(topic, partition, offset, 0)

    app = Application(
        connection,
        consumer_group=plan.group,
        topic_manager=Names(TopicAdmin(connection), plan.group),
        state_dir=Path(plan.folder) / "state",
        auto_offset_reset="earliest",
        commit_interval=settings["commit_interval_ms"] / 1000,
        consumer_poll_timeout=settings["poll_timeout_ms"] / 1000,
        use_changelog_topics=settings["changelog"],
        processing_guarantee=settings["guarantee"],
        # Static membership: a restarted program replaces the one that was killed.
        consumer_extra_config={"group.instance.id": plan.group},
        # Use the partitioner of Java clients.
        producer_extra_config={
            "linger.ms": settings["linger_ms"],
            "compression.type": settings["compression"],
            "partitioner": "murmur2_random",
        },
        on_message_processed=processed,
        loglevel="WARNING",
    )
    Flow(plan, app)
    watch = Watch(plan, reading)
    app._dataframe_registry.register_periodic_task(lambda: watch.look(app))
    app.run()


if __name__ == "__main__":
    main()
