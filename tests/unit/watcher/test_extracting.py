"""Identities in every format, and the reason if a record has none."""

import base64
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import MARKER
from schemas.watch import WatchedTopic
from services.watcher.extracting import Extractor
from services.watcher.records import hashes
from services.watcher.schema_ids import MAX_INFLATED_BYTES
from tests.contract.crc_64_avro import canonical, crc_64_avro
from tests.unit.watcher.extracted import BY_VALUE, identities, of
from tests.unit.watcher.protobuf_files import PROTOBUF, descriptors, protobuf
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


BOTH = ["value.id", "value.site.name"]
AVRO = {"schemas": [json.dumps(ORDER)]}
IDS = {"schema_ids": {"7": json.dumps(ORDER)}}
GUID = "01234567-8123-4567-8123-456781234567"
GLUE = b"\3\0" + bytes.fromhex(GUID.replace("-", ""))
GLUE_ZLIB = b"\3\5" + GLUE[2:]
BY_GUID = {"schema_ids": {GUID: json.dumps(ORDER)}}


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ({"format": "json"}, json.dumps(AN_ORDER).encode()),
        ({"format": "json-confluent"}, b"\0\0\0\0\x07" + json.dumps(AN_ORDER).encode()),
        ({"format": "avro", **AVRO}, datum(ORDER, AN_ORDER)),
        ({"format": "avro-single-object", **AVRO}, MARKER + FINGERPRINT + datum(ORDER, AN_ORDER)),
        ({"format": "avro-confluent", **IDS}, b"\0\0\0\0\x07" + datum(ORDER, AN_ORDER)),
        ({"format": "avro-apicurio", **IDS}, bytes(8) + b"\x07" + datum(ORDER, AN_ORDER)),
        ({"format": "json-apicurio"}, bytes(8) + b"\x07" + json.dumps(AN_ORDER).encode()),
        ({"format": "avro-glue", **BY_GUID}, GLUE + datum(ORDER, AN_ORDER)),
        ({"format": "avro-glue", **BY_GUID}, GLUE_ZLIB + zlib.compress(datum(ORDER, AN_ORDER))),
        ({"format": "json-glue"}, GLUE + json.dumps(AN_ORDER).encode()),
        ({"format": "json-glue"}, GLUE_ZLIB + zlib.compress(json.dumps(AN_ORDER).encode())),
        ({"format": "json"}, b'{"id": 42, "site": "{\\"name\\": \\"north\\"}"}'),
        ({"format": "json"}, json.dumps(json.dumps(AN_ORDER)).encode()),
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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ('value."trace.id"', '{"trace.id": "o1"}'),
        ('value.a."b.c".d', '{"a": {"b.c": {"d": "o1"}}}'),
        ('value.a".b', '{"a\\"": {"b": "o1"}}'),
        ("value.list.1.id", '{"list": [1, {"id": "o1"}]}'),
    ],
)
def test_names_with_dots_are_in_quotation_marks(path, value):
    topic = {"format": "json", "identity": [path]}
    assert identities(topic, message("t", value.encode())) == (of("o1"), {})
    record = message("t", None, headers=[("ce.id", b"o1")])
    assert identities({"identity": ["header.ce.id"]}, record) == (of("o1"), {})


@pytest.mark.parametrize("path", ['value."a.b', 'value."".b', "value.", "value..a", "header.", "k"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="must be key, "):
        WatchedTopic.model_validate({"topic": "t", "format": "json", "identity": [path]})


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
            {"format": "avro-apicurio", "identity": BOTH, **IDS},
            message("t", b"\0\0\0\0\x07xx"),
            "it does not start with 0 and a schema id of eight bytes",
        ),
        (
            {"format": "avro-glue", "identity": BOTH, **BY_GUID},
            message("t", GLUE[:17]),
            "it does not start with the header of AWS Glue",
        ),
        (
            {"format": "json-glue", "identity": BOTH},
            message("t", GLUE_ZLIB + zlib.compress(b"{}")[:-1]),
            "it cannot be decompressed",
        ),
        (
            {"format": "json-glue", "identity": BOTH},
            message("t", GLUE_ZLIB + b"{}"),
            "it cannot be decompressed",
        ),
        (
            {"format": "json-glue", "identity": BOTH},
            message("t", GLUE_ZLIB + zlib.compress(bytes(MAX_INFLATED_BYTES + 1))),
            f"it has more than {MAX_INFLATED_BYTES} bytes",
        ),
        (
            {"format": "csv", "identity": ["value.0"]},
            message("t", b"a\nb"),
            "it is not one line of separated values",
        ),
        (
            {"format": "csv", "identity": ["value.2"]},
            message("t", b"a,b"),
            "it has no field 2",
        ),
        (
            {"format": "json", "identity": ["value.a.b"]},
            message("t", b'{"a": "{"}'),
            "it has no field a.b",
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
    ("kind", "key", "text"),
    [
        ("json", b'"c1"', "c1"),
        ("json", b"17", "17"),
        ("json", b"1.50", "1.5"),
        ("json-confluent", b'\0\0\0\0\x07"c1"', "c1"),
        ("avro-confluent", b"\0\0\0\0\x0b\x0e", "7"),
        ("avro-confluent", b"\0\0\0\0\x0c\x04c1", "c1"),
        ("short", b"\xff\xfe", "-2"),
        ("int", b"\0\0\1\0", "256"),
        ("long", b"\0\0\0\0\0\0\0\x07", "7"),
        ("float", b"\x3f\xc0\0\0", "1.5"),
        ("double", b"\x40\x1c\0\0\0\0\0\0", "7"),
    ],
)
def test_a_key_of_a_primitive_type_is_its_value(kind, key, text):
    ids = {"11": '"long"', "12": '{"type": "string"}'}
    assert identities({"key": kind, "schema_ids": ids}, message("t", None, key)) == (of(text), {})


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"format": "text"}, b"c1"),
        ({"format": "json"}, b'"c1"'),
        ({"format": "avro", "schemas": ['"string"']}, b"\x04c1"),
    ],
)
def test_a_value_of_a_primitive_type_is_an_identity(settings, value):
    topic = {"identity": ["value"], **settings}
    assert identities(topic, message("t", value)) == (of("c1"), {})


def test_a_key_that_is_a_record_is_its_bytes():
    keys = [b'{"id": 1}', b'{"id":1}']
    found = identities({"key": "json"}, *(message("t", None, key) for key in keys))
    assert found == (of(*(key.decode() for key in keys)), {})


def test_keys_have_schema_files_of_their_own():
    avro = {"key": "avro", "key_schemas": [json.dumps(ORDER)], "identity": ["key.id"]}
    assert identities(avro, message("t", None, datum(ORDER, AN_ORDER))) == (of("42"), {})
    files = {"key_schemas": [descriptors()], "key_message": "shop.Order"}
    protobuf_key = {"key": "protobuf-confluent", "identity": ["key.site.name"], **files}
    record = message("t", None, b"\0\0\0\0\x09\x02\x02" + protobuf())
    assert identities(protobuf_key, record) == (of("north"), {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"key_window": "time"}, "needs window_ms"),
        ({"key_window": "store"}, "key_window = 'store' needs window_ms"),
        ({"key_window": "session", "start": "header.a"}, "replaces start and end"),
        ({"key_window": "session", "window_ms": 5}, "window_ms needs one of"),
        ({"window_ms": 5}, "window_ms needs one of"),
        ({"start": "header.a", "end": "header.b", "window_ms": 5}, "window_ms needs one of"),
        ({"format": "json", "message": "Order"}, "message needs a format with types"),
        ({"key": "avro", "identity": ["key.id"]}, "the key avro needs one file in key_schemas"),
        ({"key": "protobuf"}, "needs one file in key_schemas, and key_message"),
        ({"where": {"value.a": "b"}}, "a format other than bytes"),
        ({"where": {"header.a": []}}, "at least 1 item"),
        ({"format": "avro-glue", "identity": ["value.a"]}, "avro-glue needs files in schema_ids"),
        ({"format": "json", "separator": ";"}, "separator needs the format csv"),
        ({"format": "csv", "separator": '"'}, "separator"),
        ({"format": "csv", "separator": "\n"}, "separator"),
        ({"format": "csv", "separator": ",,"}, "separator"),
        ({"format": "csv", "separator": "§"}, "separator"),
    ],
)
def test_settings_that_do_not_fit_are_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        WatchedTopic.model_validate({"topic": "t", **fields})


LOGICAL = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
        {
            "name": "u",
            "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            "default": 5,
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["in-transit", "ok"]}},
    ],
}


@pytest.mark.parametrize(
    ("path", "as_json"),
    [
        ("n", "12.5"),
        ("n", "1250e-2"),
        ("n", '"12.5"'),
        ("u", '"01234567-8123-4567-8123-456781234567"'),
        ("at", "1500"),
        ("state", '"in-transit"'),
    ],
)
def test_values_of_logical_types_equal_those_of_json(path, as_json):
    value = b"\x04\x04\xe2" + bytes.fromhex("01234567812345678123456781234567") + b"\xb8\x17\x00"
    avro = {"format": "avro", "schemas": [json.dumps(LOGICAL)], "identity": [f"value.{path}"]}
    found = identities(avro, message("t", value))
    in_json = {"format": "json", "identity": ["value.v"]}
    assert found == identities(in_json, message("t", b'{"v": %s}' % as_json.encode()))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("12345678901234567890123.45", "12345678901234567890123.45"),
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        ("-0.0", "0"),
        ("1.10", "1.1"),
        ("9007199254740993", "9007199254740993"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_numbers_of_json_are_exact(number, text, encoding):
    record = message("t", f'{{"id": {number}}}'.encode(encoding))
    assert identities(BY_VALUE, record) == (of(text), {})


@pytest.mark.parametrize(
    "number",
    [
        "1e999999999",
        "1e-999999999",
        "1e9999999999999999999",
        "-1e-9999999999999999999",
        "0.0e9999999999999999999",
        "NaN",
        "-Infinity",
    ],
)
def test_numbers_without_a_short_text_are_no_identity(number):
    record = message("t", b'{"id": %s}' % number.encode())
    reason = "a part of its identity is null, a list or a record"
    assert identities(BY_VALUE, record) == ([], {reason: 1})


def test_a_decimal_of_megabytes_is_not_computed():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": schema}]}
    plain = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "bytes"}]}
    value = datum(plain, {"n": b"\x7f" * 4_000_000})
    topic = {"format": "avro", "schemas": [json.dumps(record)], "identity": ["value.n"]}
    assert len(identities(topic, message("t", value))[0]) == 1


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, b"7,o-1"),
        ({}, b'7,"o-1","a, b"\r\n'),
        ({}, b"\xef\xbb\xbf7,o-1,"),
        ({"separator": "\t"}, b"7\to-1"),
        ({"separator": "|"}, b"7|o-1"),
    ],
)
@pytest.mark.parametrize("where", ["value", "key"])
def test_fields_of_a_line_have_numbers(settings, line, where):
    topic = {"identity": [f"{where}.1"], "key" if where == "key" else "format": "csv"}
    assert identities(topic | settings, message("t", line, line)) == (of("o-1"), {})


@pytest.mark.parametrize("where", ["value", "key"])
def test_the_id_of_apicurio_can_be_in_a_header(where):
    """As its serialisers write it before release 3, unless told otherwise: eight bytes."""
    topic = {"identity": [f"{where}.id"], **IDS}
    topic["key" if where == "key" else "format"] = "avro-apicurio"
    value = datum(ORDER, AN_ORDER)
    headers = [(f"apicurio.{where}.globalId", bytes(7) + b"\x07")]
    assert identities(topic, message("t", value, value, headers=headers)) == (of("42"), {})


def test_bytes_of_avro_can_be_json_that_a_path_leads_into():
    schema = {"type": "record", "name": "Row", "fields": [{"name": "after", "type": "bytes"}]}
    value = datum(schema, {"after": b'{"_id": {"$oid": "66f1"}}'})
    topic = {"schemas": [json.dumps(schema)], "identity": ['value.after._id."$oid"']}
    assert identities({"format": "avro", **topic}, message("t", value)) == (of("66f1"), {})


@pytest.mark.parametrize("where", ["value", "key"])
def test_the_id_of_a_schema_can_be_in_a_header(where):
    """As Confluent's serialisers write it since 2025: 1 and the GUID."""
    topic = {"identity": [f"{where}.id"], **BY_GUID}
    topic["key" if where == "key" else "format"] = "avro-confluent"
    frame = b"\x01" + GLUE[2:]
    headers = [(f"__{where}_schema_id", frame)]
    value = datum(ORDER, AN_ORDER)
    assert identities(topic, message("t", value, value, headers=headers)) == (of("42"), {})
    assert identities(topic, message("t", frame + value, frame + value)) == (of("42"), {})
    as_json = {"identity": ["value.id"], "format": "json-confluent"}
    record = message("t", b'{"id": 42}', headers=[("__value_schema_id", frame)])
    assert identities(as_json, record) == (of("42"), {})


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
