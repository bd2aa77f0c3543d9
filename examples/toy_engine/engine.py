"""An engine in plain Python: `python engine.py PLAN`. It imports nothing of Tidegauge.

The plan (docs/write-an-engine.md) says what to read, what the stages are and where they go. All
stages run in one thread, each record at once. Windows that are closed by event time wait a second
of LogAppendTime after every input has passed their end.
"""

import bisect
import io
import json
import operator
import os
import signal
import sys
import threading
import time
from collections import OrderedDict

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

GRACE_MS, SILENT_MS, READ_MS, KEPT = 1_000, 10_000, 40, 200_000
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
           "==": operator.eq, "!=": operator.ne}  # fmt: skip
FUNCTIONS = {
    "first": lambda values: values[0],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "count_distinct": lambda values: len(set(values)),
}


class Record:
    """A schema: Avro single-object encoding is C3 01, the fingerprint, and the datum."""

    def __init__(self, text):
        schema = json.loads(text)
        crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        self.header = b"\xc3\x01" + bytes.fromhex(crc)
        for field in schema["fields"]:  # times stay integers
            if isinstance(field["type"], dict):
                field["type"] = field["type"]["type"]
        self.columns = [field["name"] for field in schema["fields"]]
        self.schema = fastavro.parse_schema(schema)

    def decode(self, value):
        """The fields of a value, or None where it is no such record."""
        if value is None or value[:10] != self.header:
            return None
        data = io.BytesIO(value[10:])
        try:
            fields = fastavro.schemaless_reader(data, self.schema)
        except Exception:
            return None
        return None if data.read(1) else fields

    def decode_json(self, value):
        """The same of a value in JSON."""
        try:
            fields = json.loads(value or b"")
            return fields if all(fields[name] is not None for name in self.columns) else None
        except (ValueError, TypeError, KeyError):
            return None

    def encode(self, fields):
        """Header and datum."""
        out = io.BytesIO()
        out.write(self.header)
        row = {name: fields.get(name) for name in self.columns}
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()


class Row:
    """A record of an input (`source`), or what stages made of several (`source` empty)."""

    def __init__(self, fields, source, event_ms, appended_ms):
        self.fields, self.source = fields, source
        self.event_ms, self.appended_ms = event_ms, appended_ms


class Groups(OrderedDict):
    """Groups by key, the newest KEPT."""

    def of(self, key, new=list):
        if key not in self:
            self[key] = new()
            if len(self) > KEPT:
                self.popitem(last=False)
        return self[key]


def keys_of(row, spec):
    return {name: row.fields[name] for name in spec["keys"]}


def windows_of(window, event_ms):
    """The windows (begin and end) that an event time is in."""
    size_ms, slide_ms = 1000 * window["size_s"], 1000 * window["slide_s"]
    start_ms = event_ms // slide_ms * slide_ms
    return [(at, at + size_ms) for at in range(start_ms, event_ms - size_ms, -slide_ms)]


def aggregates(spec, rows):
    """The columns that a stage computes over rows."""
    found = {}
    for one in spec["aggregates"]:
        values = [
            row.fields[column]
            for row in sorted(rows, key=lambda row: row.appended_ms)
            for source, _, column in (of.rpartition(".") for of in one["of"])
            if source in ("", row.source)
        ]
        found[one["column"]] = FUNCTIONS[one["function"]](values) if values else None
    return found


def made(rows, columns, event_ms):
    fields = {"run_id": rows[0].fields["run_id"], **columns}
    return Row(fields, "", event_ms, max(row.appended_ms for row in rows))


class PerRow:
    """copy, decode, filter, lookup."""

    def __init__(self, spec):
        self.spec = spec

    def add(self, row):
        fields, table = row.fields, self.spec["table"]
        if not all(
            COMPARE[c["operator"]](fields[c["column"]], c["value"]) for c in self.spec["where"]
        ):
            return []
        if table:
            entry = table["rows"].get(str(fields[table["key"]]))
            if entry is None:
                return []
            fields = {**fields, **dict(zip(table["columns"], entry, strict=True))}
        return [Row(fields, row.source, row.event_ms, row.appended_ms)]


class Join:
    """The first record of each input with the same keys and event time."""

    def __init__(self, spec, inputs):
        self.spec, self.groups = spec, Groups()
        self.inputs = {one["name"] for one in inputs}
        self.event_time = inputs[0]["event_time"]

    def add(self, row):
        keys = keys_of(row, self.spec)
        group = self.groups.of((row.fields["run_id"], *keys.values(), row.event_ms), dict)
        is_new = row.source not in group
        group.setdefault(row.source, row)
        if not is_new or set(group) != self.inputs:
            return []
        rows = list(group.values())
        columns = {**keys, self.event_time: row.event_ms, **aggregates(self.spec, rows)}
        return [made(rows, columns, row.event_ms)]


class WindowJoin:
    """Every pair of records of two inputs with the same keys in one window."""

    def __init__(self, spec):
        self.spec, self.groups = spec, Groups()

    def add(self, row):
        keys, found = keys_of(row, self.spec), []
        for start_ms, end_ms in windows_of(self.spec["window"], row.event_ms):
            group = self.groups.of((row.fields["run_id"], *keys.values(), start_ms))
            for other in group:
                if other.source != row.source:
                    by_source = {row.source: row.fields, other.source: other.fields}
                    columns = {
                        name: by_source[source.split(".")[0]][source.split(".")[1]]
                        for name, source in self.spec["columns"].items()
                    }
                    columns |= {**keys, "window_start": start_ms, "window_end": end_ms}
                    columns |= aggregates(self.spec, (row, other))
                    found.append(made((row, other), columns, end_ms - 1))
            group.append(row)
        return found


class Aggregate:
    """Rows by keys and window; a subclass says when a window is due."""

    def __init__(self, spec, inputs):
        self.spec, self.groups, self.published = spec, Groups(), Groups()
        self.inputs = [one["name"] for one in inputs]
        sources = [of.rpartition(".")[0] for one in spec["aggregates"] for of in one["of"]]
        self.needed = {source for source in sources if source}

    def windows(self, row):
        """Keys, begin and end of the windows of a row that are not published."""
        if row.source and row.source not in self.inputs:
            return
        for start_ms, end_ms in windows_of(self.spec["window"], row.event_ms):
            address = (row.fields["run_id"], *keys_of(row, self.spec).values(), start_ms)
            if address not in self.published:
                yield address, start_ms, end_ms

    def publish(self, address):
        rows, start_ms = self.groups.pop(address), address[-1]
        self.published.of(address)
        if not self.needed <= {row.source for row in rows}:
            return []
        end_ms = start_ms + 1000 * self.spec["window"]["size_s"]
        columns = {**keys_of(rows[0], self.spec), "window_start": start_ms, "window_end": end_ms}
        return [made(rows, {**columns, **aggregates(self.spec, rows)}, end_ms - 1)]


class Counted(Aggregate):
    """A window is due when all its records are there: the records say how many."""

    def add(self, row):
        found = []
        for address, _start_ms, _end_ms in self.windows(row):
            rows = self.groups.of(address)
            if self.identity(row) not in [self.identity(other) for other in rows]:
                rows.append(row)
                if self.is_complete(rows):
                    found += self.publish(address)
        return found

    def identity(self, row):
        """What counts once."""
        every_ms = 1000 * self.spec["complete"]["every_s"]
        names = self.spec["once_per"] or ["sequence"]
        return row.source, row.event_ms // every_ms, *(row.fields[name] for name in names)

    def is_complete(self, rows):
        complete = self.spec["complete"]
        most = max(row.fields[complete["column"]] for row in rows)
        due = most * (self.spec["window"]["size_s"] // complete["every_s"])
        return all(sum(row.source == one for row in rows) >= due for one in self.inputs)


class Closed(Aggregate):
    """A window is due when event time has passed its end in every input, and a second later."""

    def __init__(self, spec, inputs):
        super().__init__(spec, inputs)
        self.newest, self.passed = Groups(), Groups()

    def add(self, row):
        for address, _start_ms, end_ms in self.windows(row):
            closing_ms = self.closing_ms(address[0], end_ms)
            if closing_ms is None or row.appended_ms <= closing_ms + GRACE_MS:
                self.groups.of(address).append(row)
        return []

    def seen(self, row):
        """Every record of the inputs moves event time, whatever becomes of it."""
        if row.source in self.inputs:
            run_id = row.fields["run_id"]
            newest, passed = self.newest.of(run_id, dict), self.passed.of(run_id)
            newest[row.source] = max(newest.get(row.source, row.event_ms), row.event_ms)
            if len(newest) == len(self.inputs):
                reached_ms = min(newest.values())
                if not passed or reached_ms > passed[-1][0]:
                    before_ms = passed[-1][1] if passed else 0
                    passed.append((reached_ms, max(before_ms, row.appended_ms)))
                    del passed[:-100_000]

    def closing_ms(self, run_id, end_ms):
        """The LogAppendTime at which every input had passed an event time; None if not yet."""
        passed = self.passed.get(run_id, [])
        place = bisect.bisect_left(passed, (end_ms, 0))
        return passed[place][1] if place < len(passed) else None

    def closed(self, now_ms):
        """The windows that are due now, oldest first."""
        found = []
        for address in sorted(self.groups, key=lambda address: address[-1]):
            rows, end_ms = self.groups[address], address[-1] + 1000 * self.spec["window"]["size_s"]
            closing_ms = self.closing_ms(address[0], end_ms)
            due_ms = max(row.appended_ms for row in rows) + SILENT_MS
            if closing_ms is not None:
                due_ms = min(due_ms, closing_ms + GRACE_MS)
            if due_ms + READ_MS <= now_ms:
                found += self.publish(address)
        return found


class Change:
    """Relative changes of the windows of an aggregate against those before them. A counted one
    waits for all of its parts; a closed one takes what there is when the newest is closed."""

    def __init__(self, spec):
        self.spec, self.parts = spec, Groups()
        self.part_ms = 1000 * spec["window"]["slide_s"]
        self.size_ms = 1000 * spec["window"]["size_s"]

    def add(self, row):
        keys = keys_of(row, self.spec)
        parts = self.parts.of((row.fields["run_id"], *keys.values()), OrderedDict)
        parts[row.fields["window_start"]] = row
        while len(parts) > 1_000:
            parts.popitem(last=False)
        newest_ms = row.fields["window_start"]
        if not self.spec["complete"]:
            return [self.change(keys, parts, newest_ms)]
        found = []
        for end_ms in range(newest_ms, newest_ms + self.size_ms, self.part_ms):
            whole = range(end_ms + self.part_ms - self.size_ms, end_ms + 1, self.part_ms)
            if all(start_ms in parts for start_ms in whole):
                found.append(self.change(keys, parts, end_ms))
        return found

    def change(self, keys, parts, newest_ms):
        end_ms = newest_ms + self.part_ms
        columns = {**keys, "window_start": end_ms - self.size_ms, "window_end": end_ms}
        for one in self.spec["changes"]:
            new = parts[newest_ms].fields[one["of"]]
            before = parts.get(newest_ms - one["back"] * self.part_ms)
            old = before.fields[one["of"]] if before else None
            columns[one["column"]] = (new - old) / old if old else None
        used = [parts[at] for at in parts if end_ms - self.size_ms <= at <= newest_ms]
        return made(used, columns, end_ms - 1)


def kind_of(spec, inputs):
    """A stage at work."""
    if spec["kind"] == "aggregate":
        return (Counted if spec["complete"] else Closed)(spec, inputs)
    if spec["kind"] == "join":
        return Join(spec, inputs)
    return {"window_join": WindowJoin, "change": Change}.get(spec["kind"], PerRow)(spec)


class Engine:
    """All stages of a plan, in order; rows flow from each to those that read it."""

    def __init__(self, plan, producer):
        self.plan, self.producer, self.domain = plan, producer, plan["domain"]
        self.records = {name: Record(text) for name, text in self.domain["schemas"].items()}
        self.by_topic = {one["topic"]: one for one in self.domain["inputs"]}
        self.specs = {one["name"]: one for one in self.domain["stages"]}
        needed = {name for stage in plan["outputs"] for name in self.chain(stage)}
        self.stages = [
            (one, kind_of(one, self.inputs_of(one))) for one in self.domain["stages"]
            if one["name"] in needed
        ]  # fmt: skip

    def chain(self, name):
        """The stages that one is made of, and itself."""
        if name not in self.specs:
            return []
        return [name, *(each for one in self.specs[name]["reads"] for each in self.chain(one))]

    def inputs_of(self, spec):
        """The inputs that a stage is made of: where its columns name inputs, those."""
        found = set()
        for name in spec["reads"]:
            before = self.specs.get(name)
            found |= {one["name"] for one in self.inputs_of(before)} if before else {name}
        sources = [*spec["columns"].values(), *(s for a in spec["aggregates"] for s in a["of"])]
        named = {source.split(".")[0] for source in sources if "." in source}
        return [one for one in self.domain["inputs"] if one["name"] in (found & named or found)]

    def read(self, message):
        """One input record through all stages. What does not decode is only copied."""
        source, value = self.by_topic[message.topic()], message.value()
        record = self.records[source["record"]]
        decode = record.decode_json if self.plan["wire_format"] == "json" else record.decode
        fields = decode(value)
        rows = []
        if fields is not None:
            rows = [
                Row(fields, source["name"], fields[source["event_time"]], message.timestamp()[1])
            ]
        for spec, _ in self.stages:
            if spec["kind"] == "copy" and source["name"] in spec["reads"]:
                self.send(spec, message.key(), value)
        self.flow({source["name"]: rows})
        for _, kind in self.stages:
            if rows and isinstance(kind, Closed):
                kind.seen(rows[0])

    def tick(self, now_ms):
        """Windows that are due because of the time."""
        self.flow({}, now_ms)

    def flow(self, rows, now_ms=None):
        for spec, kind in self.stages:
            found = kind.closed(now_ms) if now_ms and isinstance(kind, Closed) else []
            for name in spec["reads"]:
                for row in rows.get(name, ()):
                    found = found + kind.add(row)
            rows[spec["name"]] = found
            if spec["kind"] != "copy":
                for row in found:
                    record = self.records[spec["record"]]
                    self.send(spec, str(row.fields[spec["key"]]), record.encode(row.fields))

    def send(self, spec, key, value):
        topic = self.plan["outputs"].get(spec["name"])
        if topic is not None and value is not None:
            self.producer.produce(topic, value, key)


def say(**line):
    """One line of the contract."""
    print(json.dumps(line), flush=True)


def end_with_parent():
    """The end of standard input means: end."""
    while sys.stdin.buffer.read(1024):
        pass
    os._exit(1)


def main():
    with open(sys.argv[-1]) as file:
        plan = json.load(file)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=end_with_parent, daemon=True).start()

    kafka = {"bootstrap.servers": plan["bootstrap"], **plan["properties"]}
    consumer = Consumer(
        {**kafka, "group.id": "toy", "enable.auto.commit": False, "fetch.min.bytes": 1}
    )
    consumer.assign(
        [
            TopicPartition(topic, number, offset)
            for topic, offsets in plan["start_offsets"].items()
            for number, offset in enumerate(offsets)
        ]
    )
    # Keys get the partitions that Java's clients give them.
    settings = {"linger.ms": plan["pipeline"]["linger_ms"], "partitioner": "murmur2_random"}
    producer = Producer({**kafka, **settings, "enable.idempotence": True})
    engine = Engine(plan, producer)

    say(event="ready", detail={"python": sys.version.split()[0]})
    read, said_s, looked_s = 0, time.monotonic(), 0.0
    while not stop.is_set():
        for message in consumer.consume(1_000, 0.005):
            if message.error() is None:
                engine.read(message)
                read += 1
        if time.monotonic() - looked_s >= 0.02:
            engine.tick(time.time() * 1000)
            looked_s = time.monotonic()
        producer.poll(0)
        if time.monotonic() - said_s >= 1:
            for stage in plan["outputs"]:
                say(event="progress", stage=stage, input_rows=read)
            read, said_s = 0, time.monotonic()
    producer.flush(10)


if __name__ == "__main__":
    main()
