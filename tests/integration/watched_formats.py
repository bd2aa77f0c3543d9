"""Records in every format that a watch reads, with identities extracted by hand."""

import io
import json
import struct
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import fastavro

from services.watcher.records import hashes
from tests.integration.watched_pipeline import faulty
from tests.unit.watcher.records import datum
from tests.unit.watcher.test_extracting import descriptors, message_of

SITE = {"type": "record", "name": "Site", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "site", "type": "Site"}],
}
SITE_REFERENCE = {"name": "Site", "subject": "site", "version": 2}
WHOLE_ORDER = {**ORDER, "fields": [ORDER["fields"][0], {"name": "site", "type": SITE}]}
ORDER_7 = b"\0\0\0\0\x07"
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
    }


EPOCH_MS, WINDOW_MS = 1_700_000_000_000, 500
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


class Translating:
    """A pipeline that publishes the outputs of all watches, with faults."""

    def __init__(self):
        self._joined = defaultdict(int)
        self._window = {}

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
        elif topic == "f_read":
            yield from self._mean(message)
        else:
            self._joined[message.key()] += 1
            if self._joined[message.key()] == 2:
                number = int(message.key()[1:])
                yield from faulty(number, ("f_joined", message.key(), b"y", None))

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
