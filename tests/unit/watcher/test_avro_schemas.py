"""Avro schemas of other people's records that are refused."""

import pytest

from services.definitions.avro_schemas import parsed
from tests.unit.watcher.test_extracting import ORDER

pytestmark = pytest.mark.unit

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
