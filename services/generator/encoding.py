"""Columns to bytes: the codec's single-object encoding, a batch at a time (design §7)."""

import pyarrow as pa
import pyruhvro

from schemas import codec


def encode_batch(name: str, batch: pa.RecordBatch) -> list[bytes]:
    """Encode every row of a batch whose columns are those of schema `name`, in its order.

    The bytes equal those of `codec.encode(name, row)`.
    """
    if batch.num_rows == 0:
        return []
    header = codec.header(name)
    (datums,) = pyruhvro.serialize_record_batch(batch, codec.schema_json(name), 1)
    return [header + datum for datum in datums.to_pylist()]
