"""Values of the second wire format to the same columns, one record at a time.

Slower than `decode` by far; JSON is there because what parsing it costs is measured.
"""

import numpy as np
import pyarrow as pa
import pyruhvro

from schemas import codec
from schemas.json_format import decode_json
from services.evaluator.decode import Decoded, Refused

MEMBERS = {"traffic_flow": b'"flow_vehicles_per_hour"', "traffic_speed": b'"speed_km_per_hour"'}


def decode_json_values(
    records: tuple[str, ...], values: list[bytes | None]
) -> tuple[list[Decoded], list[Refused]]:
    """Decode values, each of which should be one of `records`; the member that is named after
    what is measured says which."""
    rows: dict[str, list[tuple[int, dict[str, object]]]] = {record: [] for record in records}
    refused = []
    for place, value in enumerate(values):
        record = next((one for one in records if MEMBERS[one] in (value or b"")), records[0])
        try:
            rows[record].append((place, decode_json(record, value)))
        except codec.DecodeError as error:
            refused.append(Refused(place, str(error)))
    decoded = []
    for record, found in rows.items():
        if found:
            places = np.array([place for place, _ in found], np.int64)
            sizes = np.array([len(values[place] or b"") for place in places], np.int64)
            decoded.append(Decoded(record, places, _columns(record, found), sizes))
    return decoded, refused


def _columns(record: str, found: list[tuple[int, dict[str, object]]]) -> pa.RecordBatch:
    schema = pyruhvro.avro_to_arrow_schema(codec.schema_json(record))
    columns = []
    for field in schema:
        plain = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        column = pa.array([fields[field.name] for _, fields in found], plain)
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
