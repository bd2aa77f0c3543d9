"""Batch encoding gives the codec's bytes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.json_format import decode_json, encode_json
from services.generator import encoding
from services.generator.content import VALUE_COLUMNS
from services.generator.encoding import encode_avro

pytestmark = pytest.mark.unit

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
doubles = st.floats(allow_nan=False)
texts = st.text(max_size=40)

TYPES = {
    "measurement_id": (texts, pa.string()),
    "lane": (texts, pa.string()),
    "num_lanes": (int32s, pa.int32()),
    "latitude": (doubles, pa.float64()),
    "longitude": (doubles, pa.float64()),
    "observed_at": (int64s, pa.timestamp("ms")),
    "period_s": (int32s, pa.int32()),
    "accuracy_percent": (int32s, pa.int32()),
    "flow_vehicles_per_hour": (int32s, pa.int32()),
    "speed_km_per_hour": (doubles, pa.float64()),
    "sequence": (int64s, pa.int64()),
    "run_id": (texts, pa.string()),
    "scheduled_at": (int64s, pa.timestamp("us")),
}


def columns_of(kind):
    other = VALUE_COLUMNS["speed" if kind == "flow" else "flow"]
    return [name for name in TYPES if name != other]


@st.composite
def batches(draw, kind):
    return draw(
        st.lists(
            st.fixed_dictionaries({name: TYPES[name][0] for name in columns_of(kind)}),
            max_size=20,
        )
    )


@pytest.mark.parametrize("kind", ["flow", "speed"])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_every_row_has_the_bytes_that_the_codec_gives(kind, data):
    rows = data.draw(batches(kind))
    start = data.draw(st.integers(0, len(rows)))
    schema = pa.schema([(name, TYPES[name][1]) for name in columns_of(kind)])
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    name = f"traffic_{kind}"
    expected = [codec.encode(name, row) for row in rows]
    assert encode_avro(name, batch).to_pylist() == expected
    assert encode_avro(name, batch.slice(start)).to_pylist() == expected[start:]


@pytest.mark.parametrize("kind", ["flow", "speed"])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_every_row_has_the_values_that_plain_json_has(kind, data):
    rows = data.draw(batches(kind))
    finite = [
        row for row in rows if all(v not in (float("inf"), -float("inf")) for v in row.values())
    ]
    schema = pa.schema([(name, TYPES[name][1]) for name in columns_of(kind)])
    columns = [pa.array([row[f.name] for row in finite], f.type) for f in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    name = f"traffic_{kind}"
    found = [decode_json(name, value) for value in encoding.encode_json(batch).to_pylist()]
    assert found == finite == [decode_json(name, encode_json(name, row)) for row in finite]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "measurement_id is missing"),
        (b'{"a":' * 5_000, "not JSON: RecursionError"),
    ],
)
def test_what_is_not_a_json_record_says_why(value, reason):
    with pytest.raises(codec.DecodeError, match=reason):
        decode_json("traffic_flow", value)
