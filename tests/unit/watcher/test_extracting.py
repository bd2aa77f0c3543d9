"""Identities in every format, and the reason if a record has none."""

import base64
import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import MARKER
from schemas.watch import WatchedTopic
from services.watcher.decoding import message_of, parsed
from services.watcher.extracting import Extractor
from services.watcher.records import hashes
from tests.contract.crc_64_avro import canonical, crc_64_avro
from tests.unit.watcher.records import Unreadable, datum, message

pytestmark = pytest.mark.unit

SERIALISED = Path(__file__).parent / "data" / "serialised.json"  # by serialise.py
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "site",
            "type": {
                "type": "record",
                "name": "Site",
                "fields": [{"name": "name", "type": ["null", "string"]}],
            },
        },
    ],
}
AN_ORDER = {"id": 42, "site": {"name": "north"}}
FINGERPRINT = crc_64_avro(canonical(ORDER).encode()).to_bytes(8, "little")


def identities(topic, *messages):
    """Hashes of the records with an identity, and the reasons for the others."""
    found = Extractor(WatchedTopic.model_validate({"topic": "t", **topic}), None).extract(
        [*messages]
    )
    return found.hash.tolist(), {reason: one.count for reason, one in found.refused.items()}


def of(*texts):
    return hashes([text.encode() for text in texts]).tolist()


def descriptors():
    field = descriptor_pb2.FieldDescriptorProto
    site = descriptor_pb2.DescriptorProto(name="Site")
    site.field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="site",
        number=2,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Site",
        label=field.LABEL_OPTIONAL,
    )
    labels = order.nested_type.add(name="LabelsEntry")
    labels.options.map_entry = True
    labels.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    labels.field.add(name="value", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    sites = order.nested_type.add(name="SitesEntry")
    sites.options.map_entry = True
    sites.field.add(name="key", number=1, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    sites.field.add(
        name="value",
        number=2,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Site",
        label=field.LABEL_OPTIONAL,
    )
    for number, (name, entry) in enumerate((("labels", "LabelsEntry"), ("sites", "SitesEntry"))):
        order.field.add(
            name=name,
            number=3 + number,
            type=field.TYPE_MESSAGE,
            type_name=f".shop.Order.{entry}",
            label=field.LABEL_REPEATED,
        )
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.extend([site, order])
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(files.SerializeToString()).decode()


def protobuf():
    message_class = message_of(descriptors(), "shop.Order")
    order = message_class(id=42)
    order.site.name = "north"
    order.labels["of"] = "l1"
    order.sites[True].name = "south"
    return order.SerializeToString()


BOTH = ["value.id", "value.site.name"]
PROTOBUF = {"schemas": [descriptors()], "message": "shop.Order"}
AVRO = {"schemas": [json.dumps(ORDER)]}
IDS = {"schema_ids": {"7": json.dumps(ORDER)}}


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ({"format": "json"}, json.dumps(AN_ORDER).encode()),
        ({"format": "json-confluent"}, b"\0\0\0\0\x07" + json.dumps(AN_ORDER).encode()),
        ({"format": "avro", **AVRO}, datum(ORDER, AN_ORDER)),
        ({"format": "avro-single-object", **AVRO}, MARKER + FINGERPRINT + datum(ORDER, AN_ORDER)),
        ({"format": "avro-confluent", **IDS}, b"\0\0\0\0\x07" + datum(ORDER, AN_ORDER)),
        ({"format": "protobuf", **PROTOBUF}, protobuf()),
        ({"format": "protobuf-confluent", **PROTOBUF}, b"\0\0\0\0\x09\x02\x02" + protobuf()),
    ],
)
def test_an_identity_is_the_same_in_every_format(topic, value):
    assert identities({"identity": BOTH, **topic}, message("t", value)) == (
        of("42\x1fnorth"),
        {},
    )


def test_keys_and_headers_are_identities():
    record = message("t", None, b"k1", headers=[("id", b"first"), ("id", b"last")])
    assert identities({}, record)[0] == of("k1")
    assert identities({"identity": ["header.id"]}, record)[0] == of("last")


@pytest.mark.parametrize(
    ("identity", "found"),
    [
        (["header.id"], ([], {"the name of a header is not UTF-8": 1})),
        (["header.a", "header.b"], ([], {"the name of a header is not UTF-8": 1})),
        (["key"], (of("k"), {})),
    ],
)
def test_headers_whose_names_are_not_utf_8_are_read_once(identity, found):
    assert identities({"identity": identity, "by": "header.by"}, Unreadable()) == found


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ({"key": "json"}, json.dumps(AN_ORDER).encode()),
        ({"key": "json-confluent"}, b"\0\0\0\0\x07" + json.dumps(AN_ORDER).encode()),
        ({"key": "avro-confluent", **IDS}, b"\0\0\0\0\x07" + datum(ORDER, AN_ORDER)),
    ],
)
def test_fields_of_keys_are_identities(topic, key):
    topic = topic | {"identity": ["key.id", "key.site.name"], "by": "key.site.name"}
    assert identities(topic, message("t", b"?", key)) == (of("42\x1fnorth"), {})
    assert identities(topic, message("t", b"?", None)) == ([], {"it has no key": 1})
    ((_, refused),) = [identities(topic, message("t", b"?", b"{"))]
    assert sum(refused.values()) == 1


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("value", "avro-confluent"),
        ("value", "json-confluent"),
        ("value", "protobuf-confluent"),
        ("key", "avro-confluent"),
        ("key", "json-confluent"),
    ],
)
def test_what_the_serialisers_of_confluent_kafka_write_is_read(where, kind):
    recorded = json.loads(SERIALISED.read_text())
    frame = base64.b64decode(recorded["frames"][kind])
    ids = {number: json.dumps(schema) for number, schema in recorded["schema_ids"].items()}
    topic = {"identity": [f"{where}.id", f"{where}.site.name"], "schema_ids": ids}
    topic["key" if where == "key" else "format"] = kind
    if kind == "protobuf-confluent":
        topic |= {"schemas": [recorded["descriptors"]], "message": "shop.Order"}
    record = message("t", frame, frame)
    assert identities(topic, record) == (of("42\x1fnorth"), {})


def test_a_path_into_a_key_needs_a_key_with_fields():
    with pytest.raises(ValueError, match="a path into the key needs one of these keys: json, "):
        WatchedTopic.model_validate({"topic": "t", "identity": ["key.id"]})


def test_a_key_that_is_a_number_is_the_same_as_its_text_in_a_value():
    key = (2**40 + 1).to_bytes(8, "big")
    in_key = identities({"key": "long"}, message("t", None, key))[0]
    in_value = {"format": "json", "identity": ["value.n"]}
    assert in_key == identities(in_value, message("t", b'{"n": 1099511627777}'))[0]
    assert in_key == identities(in_value, message("t", b'{"n": "1099511627777"}'))[0]
    assert in_key == of("1099511627777")
    assert identities({"key": "int"}, message("t", None, b"\xff\xff\xff\xfe"))[0] == of("-2")


@pytest.mark.parametrize(
    ("topic", "record", "reason"),
    [
        ({}, message("t", b"v"), "it has no key"),
        ({"key": "long"}, message("t", b"v", b"abc"), "its key of 3 bytes is not of type long"),
        ({"identity": ["header.id"]}, message("t", b"v"), "it has no header id"),
        (
            {"format": "json", "identity": ["value.id"]},
            message("t", b"{"),
            "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ({"format": "json", "identity": ["value.id"]}, message("t"), "it has no value"),
        (
            {"format": "json", "identity": ["value.a.b"]},
            message("t", b'{"a": 1}'),
            "it has no field a.b",
        ),
        (
            {"format": "json", "identity": ["value.a"]},
            message("t", b'{"a": null}'),
            "a part of its identity is null, a list or a record",
        ),
        (
            {"format": "avro-confluent", "identity": BOTH, **IDS},
            message("t", b"\0\0\0\0\x08x"),
            "no file contains schema 8",
        ),
        (
            {"format": "avro-confluent", "identity": BOTH, **IDS},
            message("t", b"\x01\0\0\0\x07x"),
            "it does not start with 0 and a schema id",
        ),
        (
            {"format": "avro-single-object", "identity": BOTH, **AVRO},
            message("t", MARKER + b"12345678"),
            "its fingerprint 3132333435363738 matches none of the given schemas",
        ),
        (
            {"format": "avro", "identity": BOTH, **AVRO},
            message("t", datum(ORDER, AN_ORDER) + b"x"),
            "it has trailing bytes",
        ),
    ],
)
def test_a_record_without_an_identity_says_why(topic, record, reason):
    assert identities(topic, record) == ([], {reason: 1})


@pytest.mark.parametrize(
    ("path", "text"), [("value.labels.of", "l1"), ("value.sites.true.name", "south")]
)
def test_maps_of_a_message_have_their_keys_as_names(path, text):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    assert identities(topic, message("t", protobuf())) == (of(text), {})


@pytest.mark.parametrize("path", ["value.site", "value.sites", "value.sites.true"])
def test_a_message_is_no_identity(path):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    reason = "a part of its identity is null, a list or a record"
    assert identities(topic, message("t", protobuf())) == ([], {reason: 1})


@pytest.mark.parametrize("path", ["value.labels.none", "value.labels.of.more", "value.site.no"])
def test_a_path_that_a_message_does_not_have_is_a_reason(path):
    topic = {"format": "protobuf", "identity": [path], **PROTOBUF}
    found = identities(topic, message("t", protobuf()))
    assert found == ([], {f"it has no field {path.removeprefix('value.')}": 1})


def typed():
    """A file with First, and Order with the messages Line and, inside Line, Item; the entries of a
    map come before Line."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    plain = {"type": field.TYPE_STRING, "label": field.LABEL_OPTIONAL}

    def add(name, among):
        found = among.add(name=name)
        found.field.add(name="id", number=1, **plain)
        return found

    add("First", file.message_type)
    order = add("Order", file.message_type)
    entry = order.nested_type.add(name="LabelsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, **plain)
    entry.field.add(name="value", number=2, **plain)
    add("Item", add("Line", order.nested_type).nested_type)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(files.SerializeToString()).decode()


def in_frame(*varints):
    """A record o1 after Confluent's header with some varints in zigzag encoding."""
    return b"\0\0\0\0\x07" + bytes(2 * one for one in varints) + b"\x0a\x02o1"


@pytest.mark.parametrize(
    ("varints", "name"),
    [
        ((0,), "shop.First"),
        ((1, 0), "shop.First"),
        ((1, 1), "shop.Order"),
        ((2, 1, 0), "shop.Order.Line"),
        ((3, 1, 0, 0), "shop.Order.Line.Item"),
    ],
)
def test_the_indexes_of_a_frame_say_which_message_it_has(varints, name):
    fields = {"topic": "t", "format": "protobuf-confluent", "identity": ["value.id"]}
    every = ("shop.First", "shop.Order", "shop.Order.Line", "shop.Order.Line.Item")
    for watched in every:
        topic = fields | {"schemas": [typed()], "message": watched}
        extractor = Extractor(WatchedTopic.model_validate(topic), None)
        found = extractor.extract([message("t", in_frame(*varints))])
        is_mine = watched == name
        assert found.hash.tolist() == (of("o1") if is_mine else [])
        assert [*found.others] == ([] if is_mine else [f"its type is {name}"])
        assert not found.refused


@pytest.mark.parametrize("varints", [(1, 2), (2, 0, 0), (1, -1), (-1,), (101,)])
def test_indexes_of_no_message_are_a_reason(varints):
    frame = b"\0\0\0\0\x07" + b"".join(_zigzag(one) for one in varints) + b"\x0a\x02o1"
    topic = {"format": "protobuf-confluent", "identity": ["value.id"], "schemas": [typed()]}
    found, refused = identities(topic | {"message": "shop.First"}, message("t", frame))
    assert (found, sum(refused.values())) == ([], 1)


def _zigzag(number):
    coded = (number << 1) ^ (number >> 63)
    return bytes([coded]) if coded < 128 else bytes([coded & 127 | 128, coded >> 7])


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "no", "type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (NODE, "Node contains itself"),
        ({"type": "array", "items": NODE}, "Node contains itself"),
        ({"type": "array", "items": "null"}, "it has an array of items that take no bytes"),
        (
            {"type": "map", "values": {"type": "array", "items": NOTHING}},
            "items that take no bytes",
        ),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "no bytes"),
    ],
)
def test_a_schema_whose_records_have_no_bound_is_refused(schema, reason):
    """A short record of such a schema ends the process, or fills its memory."""
    with pytest.raises(ValueError, match=reason):
        parsed([schema])


@pytest.mark.parametrize(
    "schema",
    [
        ORDER,
        {"type": "array", "items": ["null", "long"]},
        {"type": "map", "values": "null"},
        {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A"]}},
        NOTHING,
    ],
)
def test_other_schemas_are_not(schema):
    assert parsed([schema])


def test_a_bad_record_costs_only_itself():
    topic = {"format": "json", "identity": ["value.id"]}
    good = [message("t", b'{"id": "a"}'), message("t", b"{"), message("t", b'{"id": "b"}')]
    found = Extractor(WatchedTopic.model_validate({"topic": "t", **topic}), None).extract(good)
    assert (found.hash.tolist(), found.rows.tolist()) == (of("a", "b"), [0, 2])


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30))
def test_a_hash_depends_on_the_value_alone(values):
    together = hashes(values).tolist()
    assert together == [hashes([value]).tolist()[0] for value in values]
    assert len({*together}) == len({*values})


def test_hashes_stay_what_they_are():
    # Saved positions contain them.
    assert hashes([b"", b"a", b"orders-17"]).tolist() == HASHES


HASHES = [16294208416658607535, 6774081908283191102, 6112146661737229921]
