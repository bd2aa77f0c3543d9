"""Frames of many records at once, as Arrow arrays: one by one they cost twenty times as much.

All frames of a batch have one send time, because one system call, or as few as possible, sends
them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.content import UNDECODABLE
from schemas.frame import HEAD_BYTES, LENGTH
from services.generator.message_batch import MessageBatch
from services.runtime.frame_batches import HEADS, MARKER_NUMBER, tag_number

_HEADS = np.dtype([("length", ">u4"), *HEADS.descr])
assert _HEADS.itemsize == LENGTH.size + HEAD_BYTES


@dataclass(frozen=True)
class Frames:
    """Frames in one buffer, each after its length. ends: of each frame in the buffer, and 0 before
    the first. keys, values: of their records."""

    data: memoryview
    ends: NDArray[np.int32]
    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.ends) - 1

    def frame(self, number: int) -> memoryview:
        """One frame without its length."""
        return self.data[int(self.ends[number]) + LENGTH.size : int(self.ends[number + 1])]


def records_of(batch: MessageBatch, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
    """Keys and values of messages as they are sent, as binary arrays."""
    is_cut = bool((batch.faults[start:stop] == UNDECODABLE).any())
    if is_cut or len(batch.memory) != 1 or len(batch.keys) != len(batch):
        pairs = [batch.record(position) for position in range(start, stop)]
        keys, values = zip(*pairs, strict=True)
        return pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    keys = batch.names.take(pa.array(batch.keys[start:stop])).cast(pa.binary())
    return keys, batch.memory[0].slice(start, stop - start)


def frames_of(
    records: tuple[pa.Array, pa.Array],
    tag: bytes,
    place: tuple[int, int],
    sequence: int,
    sent_ns: int,
) -> Frames:
    """The frames of records, keys and values. place: stream and topic; sequence: of the first
    frame."""
    keys, values = records
    key_bytes = pc.binary_length(keys).to_numpy()
    heads = np.zeros(len(keys), _HEADS)
    heads["length"] = HEAD_BYTES + key_bytes + pc.binary_length(values).to_numpy()
    heads["marker"], heads["tag"] = MARKER_NUMBER, tag_number(tag)
    heads["stream"], heads["topic"] = place
    heads["sequence"] = np.arange(sequence, sequence + len(keys))
    heads["sent_ns"], heads["key_bytes"] = sent_ns, key_bytes
    fixed = pa.binary(_HEADS.itemsize)
    buffers = [None, pa.py_buffer(heads)]
    head = pa.FixedSizeBinaryArray.from_buffers(fixed, len(keys), buffers).cast(pa.binary())
    joined = pc.binary_join_element_wise(head, keys, values, b"")
    _, ends, data = joined.buffers()
    return Frames(memoryview(data), np.frombuffer(ends, np.int32)[: len(keys) + 1], keys, values)
