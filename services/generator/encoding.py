"""Columns to bytes, a batch at a time (design §7): Avro as the codec writes it, or JSON."""

import json
import struct
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from schemas.codec import MARKER, Schema

HEADER_FIELDS = ("tidegauge_marker", "tidegauge_fingerprint")
MARKER_AS_INT = -98  # zigzag 195: as a varint C3 01
JSON_UNSAFE = r'["\\\x00-\x1f]'


def encode_avro(schema: Schema, batch: pa.RecordBatch) -> pa.BinaryArray:
    """Encode every row of a batch whose columns are those of a schema, in its order.

    The bytes equal those that the codec gives single records. The header is encoded as two more
    fields before the others, so that whole values lie in one buffer: an int whose encoding is the
    marker C3 01, and a double, which Avro writes as its 8 bytes, with the bits of the fingerprint.
    """
    if batch.num_rows == 0:
        return pa.array([], pa.binary())
    (fingerprint,) = struct.unpack("<d", schema.header[len(MARKER) :])
    marker = pa.repeat(pa.scalar(MARKER_AS_INT, pa.int32()), len(batch))
    prints = pa.array(np.full(len(batch), fingerprint))
    columns = [marker, prints, *batch.columns]
    whole = pa.RecordBatch.from_arrays(columns, [*HEADER_FIELDS, *batch.schema.names])
    (values,) = pyruhvro.serialize_record_batch(whole, _with_header(schema.text), 1)
    return values


@cache
def _with_header(text: str) -> str:
    schema = json.loads(text)
    header = [
        {"name": field, "type": kind}
        for field, kind in zip(HEADER_FIELDS, ("int", "double"), strict=True)
    ]
    return json.dumps({**schema, "fields": header + schema["fields"]})


def encode_json(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Encode every row as a JSON object with the columns as members, in their order; UTF-8.

    Times are integers in the unit of their column, floats the shortest text that is the same
    number. NaN and infinity have no JSON form and must not occur.
    """
    pieces: list[pa.Array | pa.Scalar] = []
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        pieces.append(pa.scalar(f'{"," if number else "{"}"{name}":'))
        pieces.append(_json_text(column))
    joined = pc.binary_join_element_wise(*pieces, pa.scalar("}"), pa.scalar(""))
    return joined.cast(pa.binary())


def _json_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    if pc.any(pc.match_substring_regex(column, JSON_UNSAFE)).as_py():
        encoded = column.dictionary_encode()
        texts = [json.dumps(text, ensure_ascii=False) for text in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, column, quote, pa.scalar(""))
