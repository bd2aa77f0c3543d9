"""Batch encoding gives the same bytes as the codec."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.codec import decode_json, encode_json
from schemas.columnar import arrow_types, encode_columns
from services.generator import message_batch

pytestmark = pytest.mark.unit

VALUES = {
    "name": ("string", st.text(max_size=40)),
    "count": ("int", st.integers(-(2**31), 2**31 - 1)),
    "number": ("long", st.integers(-(2**63), 2**63 - 1)),
    "share": ("double", st.floats(allow_nan=False)),
    "at": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.integers(-(2**63), 2**63 - 1),
    ),
    "sent": (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.integers(-(2**63), 2**63 - 1),
    ),
}


def a_schema(**fields):
    found = [{"name": name, "type": kind} for name, kind in fields.items()]
    return codec.schema_of(json.dumps({"type": "record", "name": "any", "fields": found}))


SCHEMA = a_schema(**{name: kind for name, (kind, _) in VALUES.items()})
RECORDS = codec.RecordSchemas([SCHEMA])
rows_of_any_record = st.lists(
    st.fixed_dictionaries({name: values for name, (_, values) in VALUES.items()}), max_size=20
)


def batch_of(rows):
    types = arrow_types(SCHEMA)
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in types.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


@given(rows_of_any_record, st.data())
@settings(max_examples=100, deadline=None)
def test_every_row_has_the_bytes_that_the_codec_gives(rows, data):
    start = data.draw(st.integers(0, len(rows)))
    batch = batch_of(rows)
    expected = [RECORDS.encode("any", row) for row in rows]
    assert encode_columns(SCHEMA, batch).to_pylist() == expected
    assert encode_columns(SCHEMA, batch.slice(start)).to_pylist() == expected[start:]


@given(rows_of_any_record)
@settings(max_examples=100, deadline=None)
def test_every_row_has_the_values_that_plain_json_has(rows):
    finite = [
        row for row in rows if all(v not in (float("inf"), -float("inf")) for v in row.values())
    ]
    values = message_batch.encode_json(batch_of(finite)).to_pylist()
    plain = [encode_json("any", row, RECORDS) for row in finite]
    assert [decode_json("any", value, RECORDS) for value in values] == finite
    assert [decode_json("any", value, RECORDS) for value in plain] == finite


@pytest.mark.parametrize("kind", [["null", "string"], "bytes", {"type": "array", "items": "int"}])
def test_a_type_that_no_input_has_is_refused(kind):
    with pytest.raises(ValueError, match="the field odd of any has a type that no input has"):
        arrow_types(a_schema(odd=kind))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "name is missing"),
        (b'{"a":' * 5_000, "not JSON: RecursionError"),
    ],
)
def test_what_is_not_a_json_record_says_why(value, reason):
    with pytest.raises(codec.DecodeError, match=reason):
        decode_json("any", value, RECORDS)
