"""Avro values of one record type as Arrow columns, a whole batch at once.

The bytes are those of `codec`, which serves single records. pyruhvro has no fixed-size fields, so
the 10-byte header is handled as two more fields in front of the record: the marker C3 01 is Avro's
encoding of the long -98, and Avro writes a double as 8 bytes, here those of the fingerprint.
"""

import json
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyruhvro

from schemas.codec import MARKER, RecordSchemas, Schema

HEADER_FIELDS = {"tidegauge_marker": "long", "tidegauge_fingerprint": "double"}
MARKER_AS_LONG = -98
_ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
}
Sizes = np.ndarray[Any, np.dtype[np.int64]]


def arrow_types(schema: Schema) -> dict[str, pa.DataType]:
    """The Arrow type of each field of an input's schema. Raises ValueError for other types."""
    result = {}
    for each in json.loads(schema.text)["fields"]:
        kind = each["type"]
        if isinstance(kind, dict):
            kind = kind.get("logicalType", kind.get("type"))
        if not isinstance(kind, str) or kind not in _ARROW_TYPES:
            raise ValueError(
                f"the field {each['name']} of {schema.name} has a type that no input has; "
                f"types are: {', '.join(_ARROW_TYPES)}"
            )
        result[each["name"]] = _ARROW_TYPES[kind]
    return result


def encode_columns(schema: Schema, batch: pa.RecordBatch) -> pa.BinaryArray:
    """Encode every row of a batch with the columns of a schema, in the order of the schema. All
    values are in one buffer."""
    if batch.num_rows == 0:
        return pa.array([], pa.binary())
    (fingerprint,) = struct.unpack("<d", schema.header[len(MARKER) :])
    marker = pa.repeat(pa.scalar(MARKER_AS_LONG, pa.int64()), len(batch))
    columns = [marker, pa.array(np.full(len(batch), fingerprint)), *batch.columns]
    whole = pa.RecordBatch.from_arrays(columns, [*HEADER_FIELDS, *batch.schema.names])
    (values,) = pyruhvro.serialize_record_batch(whole, with_header(schema.text), 1)
    return values


def decode_columns(
    codec: RecordSchemas, record: str, values: Sequence[bytes]
) -> tuple[pa.RecordBatch, Sizes]:
    """Decode values of the newest version of a record: its columns, times as Arrow timestamps, and
    the size of each value in bytes.

    Raises ValueError, or TypeError for None, unless every value is exactly one record. pyruhvro
    alone would accept invalid UTF-8, bytes after the end of a record and overlong integers. These
    are detected by encoding the result and comparing the bytes.
    """
    schema = with_header(codec.schema_json(record))
    batch = pyruhvro.deserialize_array(values, schema)
    columns = batch.select(batch.schema.names[len(HEADER_FIELDS) :])
    if not len(values):
        return columns, np.empty(0, np.int64)
    batch.validate(full=True)
    (again,) = pyruhvro.serialize_record_batch(batch, schema, 1)
    if not again.equals(pa.array(values, again.type)):
        raise ValueError("not encoded as the codec does")
    if not _all_have_header(codec.header(record), batch):
        raise ValueError("another schema's header")
    ends = np.frombuffer(again.buffers()[1], np.int32, len(values) + 1, 4 * again.offset)
    return columns, np.diff(ends).astype(np.int64)


def _all_have_header(header: bytes, batch: pa.RecordBatch) -> bool:
    marker, fingerprint = (batch.column(name).to_numpy() for name in HEADER_FIELDS)
    expected = np.frombuffer(header[len(MARKER) :], "<i8")
    return bool((marker == MARKER_AS_LONG).all() and (fingerprint.view("<i8") == expected).all())


@cache
def with_header(schema_json: str) -> str:
    """The schema of a record with the header's fields in front."""
    schema = json.loads(schema_json)
    header = [{"name": name, "type": kind} for name, kind in HEADER_FIELDS.items()]
    return json.dumps(schema | {"fields": header + schema["fields"]})
