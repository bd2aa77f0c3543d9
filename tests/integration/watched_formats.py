"""Records in every format that a watch reads, with identities extracted by hand."""

import io
import json
import struct
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import fastavro

from services.watcher.decoding import message_of
from services.watcher.records import hashes
from tests.integration.watched_pipeline import as_json, faulty
from tests.unit.watcher.protobuf_files import descriptors
from tests.unit.watcher.records import datum

SITE = {"type": "record", "name": "Site", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "site", "type": "Site"}],
}
SITE_REFERENCE = {"name": "Site", "subject": "site", "version": 2}
WHOLE_ORDER = {**ORDER, "fields": [ORDER["fields"][0], {"name": "site", "type": SITE}]}
ORDER_7 = b"\0\0\0\0\x07"
PLACED = '{"type": "record", "name": "shop.Placed", "fields": [{"name": "id", "type": "long"}]}'
PAID = '{"type": "record", "name": "shop.Paid", "fields": [{"name": "sum", "type": "double"}]}'
PLACED_21, PAID_22, LONG_23 = (b"\0\0\0\0" + bytes([number]) for number in (21, 22, 23))
PROTOBUF = message_of(descriptors(), "shop.Order")


def sides(registry):
    """Definitions of the watches, by name."""
    login = {"url": registry.url, "user": "reader", "password": "secret"}
    of_order = ["value.id", "value.site.name"]
    proto = {"format": "protobuf", "schemas": [descriptors()], "message": "shop.Order"}
    header = {"identity": ["header.id"]}
    return {
        "translated": {
            "registry": login,
            "inputs": [{"topic": "f_avro", "format": "avro-confluent", "identity": of_order}],
            "outputs": [{"topic": "f_proto", **proto, "identity": of_order}],
        },
        "numbered": {
            "inputs": [{"topic": "f_long", "key": "long"}],
            "outputs": [{"topic": "f_json", "format": "json", "identity": ["value.n"]}],
        },
        "headed": {
            "inputs": [{"topic": "f_in", **header}],
            "outputs": [{"topic": "f_out", **header}],
        },
        "joined": {
            "inputs": [{"topic": "f_left"}, {"topic": "f_right"}],
            "outputs": [{"topic": "f_joined"}],
            "relation": {"kind": "join", **BOUNDS},
        },
        "few": {
            "inputs": [{"topic": "f_in", **header}],
            "outputs": [{"topic": "f_few"}],
            "relation": {"kind": "filter", **BOUNDS},
            "share": 0.25,
        },
        "windowed": {
            "inputs": [{"topic": "f_read", "format": "json", "time": "value.at"}],
            "outputs": [
                {
                    "topic": "f_mean",
                    "format": "json",
                    "identity": ["value.site"],
                    "start": "value.window.start",
                    "end": "value.window.end",
                    "time_format": "iso",
                }
            ],
            "relation": {"kind": "window", **BOUNDS},
        },
        "typed": {
            "inputs": [
                {
                    "topic": "f_events",
                    "format": "avro-confluent",
                    "schema_ids": {"21": PLACED, "22": PAID},
                    "message": "shop.Placed",
                    "identity": ["value.id"],
                }
            ],
            "outputs": [
                {"topic": "f_placed", "key": "avro-confluent", "schema_ids": {"23": '"long"'}}
            ],
        },
        "changed": {
            "inputs": [{"topic": "f_rows", "format": "json", "identity": ["value.after.id"]}],
            "outputs": [{"topic": "f_copies", "key": "json"}],
        },
        "streamed": {
            "inputs": [{"topic": "f_sensed", "time": "timestamp"}],
            "outputs": [{"topic": "f_counts", "key_window": "time", "window_ms": COUNT_MS}],
            "relation": {"kind": "window", **BOUNDS},
        },
    }


EPOCH_MS, WINDOW_MS = 1_700_000_000_000, 500
COUNT_MS = 100  # windows of the records' timestamps
REMOVED = 10  # one in so many rows is deleted again
BOUNDS = {"deadline_ms": 2_000, "give_up_ms": 4_000, "remember_ms": 8_000}


def record_of_every_format(number):
    """One input of each watch."""
    order = {"id": number, "site": {"name": "north"}}
    yield "f_avro", None, ORDER_7 + datum(WHOLE_ORDER, order), None
    yield "f_long", struct.pack(">q", number - 2_000), b"x", None
    yield "f_in", None, b"x", [("id", b"h%d" % number)]
    yield "f_left", b"j%d" % number, b"x", None
    if number % 50:
        yield "f_right", b"j%d" % number, b"x", None
    at_ms = EPOCH_MS + 10 * number - (1_000 if number % 77 == 0 else 0)
    yield "f_read", b"s%d" % (number % 5), json.dumps({"at": at_ms}).encode(), None
    yield "f_events", None, PLACED_21 + datum("long", number), None
    if number % 3 == 0:
        yield "f_events", None, PAID_22 + bytes(8), None
    yield "f_rows", b"%d" % number, as_json(op="c", before=None, after={"id": f"r{number}"}), None
    if number % REMOVED == 0:
        deleted = as_json(op="d", before={"id": f"r{number}"}, after=None)
        yield "f_rows", b"%d" % number, deleted, None
        yield "f_rows", b"%d" % number, None, None
    yield "f_sensed", b"s%d" % (number % 5), b"x", None


class Translating:
    """A pipeline that publishes the outputs of all watches, with faults."""

    def __init__(self):
        self._joined = defaultdict(int)
        self._window = {}
        self._counted = {}

    def __call__(self, message):
        topic = message.topic()
        if topic == "f_avro":
            record = order_of(message)
            order = PROTOBUF(id=record["id"])
            order.site.name = record["site"]["name"]
            yield from faulty(record["id"], ("f_proto", None, order.SerializeToString(), None))
        elif topic == "f_long":
            (number,) = struct.unpack(">q", message.key())
            yield from faulty(number, ("f_json", None, json.dumps({"n": number}).encode(), None))
        elif topic == "f_in":
            name = message.headers()[0][1]
            number = int(name[1:])
            yield from faulty(number, ("f_out", None, b"y", [("id", name)]))
            if number % 3 == 0:
                yield from faulty(number, ("f_few", name, b"y", None))
        elif topic == "f_events":
            if (number := placed_of(message)) is not None:
                key = LONG_23 + datum("long", number)
                yield from faulty(number, ("f_placed", key, b"y", None))
        elif topic == "f_rows":
            if (name := row_of(message)) is not None:
                key = json.dumps(name).encode()
                yield from faulty(int(name[1:]), ("f_copies", key, b"y", None))
        elif topic == "f_sensed":
            yield from self._count(message)
        elif topic == "f_read":
            yield from self._mean(message)
        else:
            self._joined[message.key()] += 1
            if self._joined[message.key()] == 2:
                number = int(message.key()[1:])
                yield from faulty(number, ("f_joined", message.key(), b"y", None))

    def _count(self, message):
        """A windowed key as Kafka Streams writes it, of the window before, at the first record of
        the next one."""
        site, window = message.key(), message.timestamp()[1] // COUNT_MS
        before = self._counted.get(site, window)
        self._counted[site] = max(window, before)
        if window > before and (before + int(site[1:])) % 31:
            yield 0.0, ("f_counts", site + struct.pack(">q", before * COUNT_MS), b"y", None)

    def _mean(self, message):
        """The previous window, if a record is the first of its own; records of older windows are
        dropped."""
        site = message.key()
        window = json.loads(message.value())["at"] // WINDOW_MS
        before = self._window.get(site, window)
        self._window[site] = max(window, before)
        if window > before:
            number = before + int(site[1:])
            mean = ("f_mean", None, window_of(site, before), None)
            if number % 31:
                yield (2.5 if number % 17 == 0 else 0.0), mean
            if number % 13 == 0:
                yield 0.3, mean
            if number % 41 == 0:
                yield 0.0, ("f_mean", None, window_of(b"nowhere", before), None)


def window_of(site, number):
    """A mean of a window, in JSON."""
    begin = datetime.fromtimestamp(number * WINDOW_MS / 1000, UTC)
    end = begin + timedelta(milliseconds=WINDOW_MS)
    span = {"start": begin.isoformat(), "end": end.isoformat()}
    return json.dumps({"site": site.decode(), "window": span, "mean": 3.5}).encode()


def order_of(message):
    """An order in Avro with Confluent's header."""
    value = message.value()
    assert value[:5] == ORDER_7
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), WHOLE_ORDER, None)


def placed_of(message):
    """The id of an order that was placed; None for another event."""
    head, value = message.value()[:5], message.value()[5:]
    return fastavro.schemaless_reader(io.BytesIO(value), "long") if head == PLACED_21 else None


def row_of(message):
    """The id after a change; None after a delete, and of a tombstone."""
    record = json.loads(message.value() or "{}")
    return (record.get("after") or {}).get("id")


def counted_window_of(message):
    """Identity, start and end of a windowed key, in microseconds."""
    (start_ms,) = struct.unpack(">q", message.key()[-8:])
    return message.key()[:-8].decode(), 1000 * start_ms, 1000 * (start_ms + COUNT_MS)


def proto_identity(message):
    order = PROTOBUF.FromString(message.value())
    return order.id, order.site.name


def header_of(message):
    return message.headers()[0][1]


def span_of(message):
    """Identity, start and end of a mean, in microseconds, extracted by hand."""
    record = json.loads(message.value())
    times = (record["window"][name] for name in ("start", "end"))
    return record["site"], *(round(datetime.fromisoformat(t).timestamp() * 1e6) for t in times)


# Of inputs and outputs, in the order of `sides`.
IDENTITIES = [
    (lambda m: (order_of(m)["id"], order_of(m)["site"]["name"]), proto_identity),
    (lambda m: struct.unpack(">q", m.key())[0], lambda m: json.loads(m.value())["n"]),
    (header_of, header_of),
    (lambda m: m.key(), lambda m: m.key()),
    (header_of, lambda m: m.key()),
    (lambda m: (m.key().decode(), 1000 * json.loads(m.value())["at"]), span_of),
    (placed_of, lambda m: fastavro.schemaless_reader(io.BytesIO(m.key()[5:]), "long")),
    (row_of, lambda m: json.loads(m.key())),
    (lambda m: (m.key().decode(), 1000 * m.timestamp()[1]), counted_window_of),
]


def joined(inputs):
    """For each pair of inputs with the same identity, the later time; without pairs that are so far
    apart that the first was given up, as on a busy machine."""
    times = defaultdict(list)
    for name, ms in inputs:
        times[name].append(ms)
    return [
        (name, max(found))
        for name, found in times.items()
        if len(found) == 2 and max(found) - min(found) <= BOUNDS["give_up_ms"]
    ]


def sampled(pairs, share):
    """The pairs whose hash is in the sample."""
    return [pair for pair in pairs if hashes([pair[0]]).tolist()[0] < share * 2**64]
