"""Rows as an array of the Kafka client's messages, which point to keys and values.

Columns are encoded a batch at a time: as Avro, with the same bytes as the codec, or as JSON. A
message has the layout of librdkafka's public `rd_kafka_message_t` (rdkafka.h, unchanged since 0.8
on 64-bit machines), so a batch is passed on without per-record Python code.
"""

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.columnar import arrow_types, encode_columns
from schemas.content import IMPOSSIBLE, UNDECODABLE
from schemas.domain import RUN_ID, SCHEDULED_AT, SEQUENCE, InputSpec
from schemas.records import EVENT_MS, KEY, Int64s
from services.generator.dataset_plan import DatasetPlan, RecordArrays

MESSAGE = np.dtype(
    {
        "names": ["error", "value", "value_bytes", "key", "key_bytes", "private"],
        "formats": ["<i4", "<u8", "<u8", "<u8", "<u8", "<i8"],
        "offsets": [0, 24, 32, 40, 48, 64],
        "itemsize": 72,
    }
)
JSON_UNSAFE = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class MessageBatch:
    """Messages for one topic in the order of their scheduled times, one array element each.

    due_us: after the load's start; seconds: of the load, in which they are counted (-1: none);
    faults: kinds. memory: keeps the buffers alive that the messages point to. keys, names: key
    number of each message, and the keys by number.
    """

    topic: str
    due_us: Int64s
    seconds: NDArray[np.int32]
    faults: NDArray[np.int8]
    messages: NDArray[Any]
    memory: tuple[pa.Array, ...] = ()
    keys: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    names: pa.StringArray = field(default_factory=lambda: pa.array([], pa.string()))

    @cached_property
    def second(self) -> int | None:
        """The second in which all of them are counted, or None if they differ."""
        first = int(self.seconds[0])
        return first if first >= 0 and bool((self.seconds == first).all()) else None

    def __len__(self) -> int:
        return len(self.due_us)

    def record(self, position: int) -> tuple[bytes, bytes]:
        """Key and value of one message."""
        message = self.messages[position]
        key = ctypes.string_at(int(message["key"]), int(message["key_bytes"]))
        return key, ctypes.string_at(int(message["value"]), int(message["value_bytes"]))


class RecordBuilder:
    """Builds the messages of one input from rows. load_start_ms: epoch milliseconds."""

    def __init__(self, plan: DatasetPlan, input_spec: InputSpec, load_start_ms: int) -> None:
        self._plan = plan
        self._input = input_spec
        self._load_start_ms = load_start_ms
        self._schema = plan.domain.codec.schema(input_spec.record)
        self._types = arrow_types(self._schema)
        self._as_json = plan.request.workload.content.format == "json"

    def batch(self, rows: RecordArrays, topic: str) -> MessageBatch:
        """Encode rows of the input, sorted by scheduled time, for a topic."""
        columns = self._columns(rows)
        values = encode_json(columns) if self._as_json else encode_columns(self._schema, columns)
        keys = rows.values[KEY]
        names = self._plan.records.keys(self._input.name).table(keys)
        messages = np.zeros(len(rows), MESSAGE)
        if len(rows):
            starts, sizes = addresses(values, slice(None))
            sizes[rows.fault == UNDECODABLE] //= 2
            messages["value"], messages["value_bytes"] = starts, sizes
            messages["key"], messages["key_bytes"] = addresses(names, keys)
            messages["private"] = rows.second
        return MessageBatch(
            topic,
            rows.due_us,
            rows.second,
            rows.fault,
            messages,
            (values,),
            keys,
            names,
        )

    def _columns(self, rows: RecordArrays) -> pa.RecordBatch:
        """The records as the columns of their schema."""
        columns = dict(self._plan.records.columns(self._input.name, rows.values))
        columns |= {
            SEQUENCE: rows.sequence,
            RUN_ID: pa.repeat(pa.scalar(self._plan.request.run_id, pa.string()), len(rows)),
            SCHEDULED_AT: rows.due_us + self._load_start_ms * 1000,
        }
        if self._input.event_time not in columns:
            columns[self._input.event_time] = rows.values[EVENT_MS]
        if self._input.key not in columns:
            columns[self._input.key] = self._plan.records.keys(self._input.name).names(
                rows.values[KEY]
            )
        impossible = rows.fault == IMPOSSIBLE
        if impossible.any() and self._input.impossible is not None:
            column, value = self._input.impossible.column, self._input.impossible.value
            as_is = _array(columns, column, self._types[column])
            columns[column] = pc.if_else(
                impossible, pa.scalar(value, as_is.type, from_pandas=False), as_is
            )
        arrays = [_array(columns, name, kind) for name, kind in self._types.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._types))


def _array(columns: Mapping[str, Any], name: str, kind: pa.DataType) -> pa.Array:
    if name not in columns:
        raise ValueError(f"the domain's records have no column {name!r}")
    column = columns[name]
    if isinstance(column, pa.Array):
        return column if column.type == kind else column.cast(kind)
    return pa.array(column, kind)


def addresses(strings: pa.Array, index: "Int64s | slice") -> tuple[Int64s, Int64s]:
    """Memory addresses and lengths, in bytes, of the strings at `index`.

    Valid while the array is referenced; it must have no nulls and 32-bit offsets.
    """
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    starts = ends[:-1][index].astype(np.int64)
    first = data.address if data is not None else 0
    return first + starts, ends[1:][index] - starts


def encode_json(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Encode every row as a JSON object with the columns as members, in their order; UTF-8.

    Times are integers in the unit of their column; floats are the shortest text that represents the
    same number. NaN and infinity have no JSON form and must not occur.
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
