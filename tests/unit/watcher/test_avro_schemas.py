"""Avro schemas of other people's records: refused ones, and records that contain themselves."""

from decimal import Decimal
from io import BytesIO

import pytest

from services.definitions.avro_schemas import MOST_NESTED_BYTES, fields_instead, parsed, read
from tests.unit.watcher.records import datum
from tests.unit.watcher.test_extracting import ORDER

pytestmark = pytest.mark.unit

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PARTS = {"type": "array", "items": "Item"}
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "price", "type": PRICE}, {"name": "parts", "type": PARTS}],
}
ENDLESS = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}

NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "no", "type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "items": "null"}, "it has an array of items that take no bytes"),
        (
            {"type": "map", "values": {"type": "array", "items": NOTHING}},
            "items that take no bytes",
        ),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "no bytes"),
    ],
)
def test_a_schema_whose_records_have_no_bound_is_refused(schema, reason):
    """A short record of such a schema fills the memory of the process."""
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
        NODE,
        {"type": "array", "items": NODE},
        ITEM,
        ENDLESS,
    ],
)
def test_other_schemas_are_not(schema):
    assert parsed([schema])


def test_a_record_that_contains_itself_is_read():
    schema = parsed([{"type": "array", "items": ITEM}])
    part = {"price": Decimal("0.25"), "parts": []}
    items = [{"price": Decimal("12.50"), "parts": [part, part]}, part]
    value = datum({"type": "array", "items": ITEM}, items)
    assert read(BytesIO(value), schema) == items
    assert fields_instead(schema, ["0", "parts", "1", "price"]) is None
    assert fields_instead(schema, ["0", "parts", "1", "cost"]) == ["price", "parts"]


def test_schemas_that_refer_to_each_other_are_read():
    pair = {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "left", "type": "Node"}, {"name": "right", "type": "Node"}],
    }
    value = b"\2\0\0"  # left has a next one
    assert read(BytesIO(value), parsed([NODE, pair])) == {
        "left": {"next": {"next": None}},
        "right": {"next": None},
    }


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (NODE, b"\2" * 50_000 + b"\0", "it is nested too deeply"),
        (ITEM, b"\0\2" * 50_000, "it is nested too deeply"),
        (ENDLESS, b"", "it is nested too deeply"),
        (NODE, b"\2" * MOST_NESTED_BYTES + b"\0", "contains itself, and it has over 100000 bytes"),
    ],
)
def test_a_record_that_contains_itself_without_end_is_refused(schema, value, reason):
    with pytest.raises(ValueError, match=reason):
        read(BytesIO(value), parsed([schema]))
