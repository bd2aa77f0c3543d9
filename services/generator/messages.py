"""Rows as the Kafka client takes them: an array of messages that point at keys and values.

The layout is that of librdkafka's public `rd_kafka_message_t` (rdkafka.h, unchanged since 0.8 on
64-bit machines), so a batch can be handed over without touching single records in Python.
"""

import ctypes
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.catalogue import FLOW, SPEED, record_of
from schemas.faults import UNDECODABLE
from services.generator.content import Kind, Rows, Wording
from services.generator.encoding import encode_avro, encode_json
from services.generator.names import addresses
from services.generator.recording import Int64s

TOPICS: dict[Kind, str] = {"flow": FLOW, "speed": SPEED}
MESSAGE = np.dtype(
    {
        "names": ["error", "value", "value_bytes", "key", "key_bytes", "private"],
        "formats": ["<i4", "<u8", "<u8", "<u8", "<u8", "<i8"],
        "offsets": [0, 24, 32, 40, 48, 64],
        "itemsize": 72,
    }
)


@dataclass(frozen=True)
class Lot:
    """Messages for one topic, in the order in which they are due, one element each.

    due_us: after the load's start; seconds: of the load, which answer for them (-1: none);
    faults: kinds. memory: what the messages point into, kept alive. sites, names: number of each
    message's key, and the keys by number.
    """

    kind: Kind
    due_us: Int64s
    seconds: NDArray[np.int32]
    faults: NDArray[np.int8]
    messages: NDArray[Any]
    memory: tuple[pa.Array, ...] = ()
    sites: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    names: pa.StringArray = field(default_factory=lambda: pa.array([], pa.string()))

    @cached_property
    def second(self) -> int | None:
        """The one second that answers for all of them, or None."""
        first = int(self.seconds[0])
        return first if first >= 0 and bool((self.seconds == first).all()) else None

    def __len__(self) -> int:
        return len(self.due_us)

    @property
    def topic(self) -> str:
        """The topic they are for."""
        return TOPICS[self.kind]

    def record(self, position: int) -> tuple[bytes, bytes]:
        """Key and value of one message."""
        message = self.messages[position]
        key = ctypes.string_at(int(message["key"]), int(message["key_bytes"]))
        return key, ctypes.string_at(int(message["value"]), int(message["value_bytes"]))


def lot_of(wording: Wording, kind: Kind, rows: Rows, wire_format: str) -> Lot:
    """Encode rows of one kind, which are in the order in which they are due."""
    columns = wording.columns(kind, rows)
    if wire_format == "json":
        values = encode_json(columns)
    else:
        values = encode_avro(record_of(TOPICS[kind]), columns)
    names = wording.sites.table(rows.site)
    messages = np.zeros(len(rows), MESSAGE)
    if len(rows):
        starts, sizes = addresses(values, slice(None))
        sizes[rows.fault == UNDECODABLE] //= 2
        messages["value"], messages["value_bytes"] = starts, sizes
        messages["key"], messages["key_bytes"] = addresses(names, rows.site)
        messages["private"] = rows.second
    return Lot(kind, rows.due_us, rows.second, rows.fault, messages, (values,), rows.site, names)
