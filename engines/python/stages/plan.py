"""The plan of a run: its stages in order with their kinds, its topics and its record types."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.closing import Closed
from stages.event_time import EventTime
from stages.kinds import Change, Counted, Join, Keyed, PerRow, Spec, WindowJoin
from stages.lines import say_undecodable
from stages.records import Record, Row

Message = tuple[str, str | bytes | None, bytes]  # topic, key, value
LOOK_EVERY_S = 0.005


def uses_times(spec: Spec) -> bool:
    """Whether event time decides which records are late for the windows of a stage."""
    return spec["kind"] == "window_join" or (spec["kind"] == "aggregate" and not spec["complete"])


class FaultyRecordError(Exception):
    """The function that decodes records failed, because the run asked for it."""


class FaultyRecord:
    """Raises at the next record once a file exists. Who removes the file raises, so it happens
    once, also with several threads and processes, and not again after a restart."""

    def __init__(self, path: str) -> None:
        self._file, self._is_due = Path(path), False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            self._is_due = self._file.exists()

    def raise_if_due(self) -> None:
        """Raises FaultyRecordError if the file exists."""
        if not self._is_due:
            return
        try:
            self._file.unlink()
        except FileNotFoundError:
            return
        raise FaultyRecordError("a faulty record, planted by the workload")


class Plan:
    """A plan in JSON, as described in docs/write-an-engine.md.

    stages: published stages and those they depend on, in order. start_offsets: by topic the start
    offset of each partition. times: event time of the records that were decoded, if a stage needs
    it (`has_times`).
    """

    def __init__(self, path: str | Path) -> None:
        plan = json.loads(Path(path).read_text())
        self.domain, self.outputs = plan["domain"], plan["outputs"]
        self.settings: dict[str, Any] = plan["pipeline"]
        self.start_offsets: dict[str, list[int]] = plan["start_offsets"]
        self.kafka: dict[str, Any] = {"bootstrap.servers": plan["bootstrap"], **plan["properties"]}
        self.bootstrap, self.group, self.folder = plan["bootstrap"], plan["group"], plan["folder"]
        self.is_json = plan["wire_format"] == "json"
        self.records = {name: Record(text) for name, text in self.domain["schemas"].items()}
        self.inputs: dict[str, Spec] = {one["topic"]: one for one in self.domain["inputs"]}
        self._specs = {one["name"]: one for one in self.domain["stages"]}
        needed = {one["name"] for stage in self.outputs for one in self.chain(stage)}
        self.stages: list[Spec] = [one for one in self.domain["stages"] if one["name"] in needed]
        self.times = EventTime(plan["deadline_ms"])
        self.has_times = any(uses_times(one) for one in self.stages)
        self._fault = FaultyRecord(plan["raise_file"]) if plan.get("raise_file") else None

    @property
    def partitions(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and start offset."""
        for topic, offsets in self.start_offsets.items():
            for number, offset in enumerate(offsets):
                yield topic, number, offset

    def chain(self, name: str) -> list[Spec]:
        """A stage and those that it depends on, nearest first."""
        if name not in self._specs:
            return []
        spec = self._specs[name]
        return [spec, *(each for one in spec["reads"] for each in self.chain(one))]

    def inputs_of(self, spec: Spec) -> list[Spec]:
        """The inputs of a stage: those that its columns name, if any."""
        found = set()
        for name in spec["reads"]:
            before = self._specs.get(name)
            found |= {one["name"] for one in self.inputs_of(before)} if before else {name}
        sources = [*spec["columns"].values(), *(s for a in spec["aggregates"] for s in a["of"])]
        named = {source.split(".")[0] for source in sources if "." in source}
        return [one for one in self.domain["inputs"] if one["name"] in (found & named or found)]

    def kind_of(self, spec: Spec) -> PerRow | Keyed:
        """A running stage."""
        kind, inputs = spec["kind"], self.inputs_of(spec)
        if uses_times(spec):
            return (WindowJoin if kind == "window_join" else Closed)(spec, inputs, self.times)
        keyed: dict[str, type[Keyed]] = {"join": Join, "aggregate": Counted, "change": Change}
        return keyed[kind](spec, inputs) if kind in keyed else PerRow(spec)

    def row_of(
        self,
        topic: str,
        value: bytes | None,
        appended_ms: int,
        place: tuple[int, int] = (-1, -1),
    ) -> Row | None:
        """The row of an input record; None for an undecodable one, which is reported. place:
        partition and offset, if the engine knows them. Raises FaultyRecordError if a run asked for
        it."""
        if self._fault is not None:
            self._fault.raise_if_due()
        source = self.inputs[topic]
        record = self.records[source["record"]]
        fields = record.decode_json(value) if self.is_json else record.decode(value)
        if fields is None:
            say_undecodable(topic, place, value)
            return None
        row = Row(fields, source["name"], fields[source["event_time"]], appended_ms)
        if self.has_times:
            self.times.seen(row)
        return row

    def copies_of(self, topic: str) -> list[str]:
        """The output topics that copy an input topic."""
        name = self.inputs[topic]["name"]
        copies = [
            one["name"] for one in self.stages if one["kind"] == "copy" and name in one["reads"]
        ]
        return [self.outputs[one] for one in copies if one in self.outputs]

    def message_of(self, spec: Spec, row: Row) -> Message:
        """The output record of a stage that is not a copy."""
        value = self.records[spec["record"]].encode(row.fields)
        return self.outputs[spec["name"]], str(row.fields[spec["key"]]), value

    def is_published(self, spec: Spec) -> bool:
        """Whether the rows of a stage must be encoded; copies use the raw bytes."""
        return spec["name"] in self.outputs and spec["kind"] != "copy"
