"""Frames of many records are those of single ones."""

import numpy as np
import pyarrow as pa
import pytest

from schemas.content import UNDECODABLE
from schemas.frame import LENGTH, Frame, encode
from services.generator.frame_batch import frames_of, records_of
from services.generator.message_batch import MESSAGE, MessageBatch, addresses

TAG = b"\x00tag of\x00"  # zero bytes at both ends are kept
VALUES = [b"first", b"", b"the third value", b"\x00\x00"]
NAMES = ["a", "bcd"]


def a_batch(faults=(0, 0, 0, 0)):
    values, names = pa.array(VALUES, pa.binary()), pa.array(NAMES)
    keys = np.array([1, 0, 1, 1])
    messages = np.zeros(len(VALUES), MESSAGE)
    starts, sizes = addresses(values, slice(None))
    sizes[np.array(faults) == UNDECODABLE] //= 2
    messages["value"], messages["value_bytes"] = starts, sizes
    messages["key"], messages["key_bytes"] = addresses(names, keys)
    seconds, due_us = np.zeros(4, np.int32), np.arange(4)
    memory = (values,)
    return MessageBatch(
        "t", due_us, seconds, np.array(faults, np.int8), messages, memory, keys, names
    )


@pytest.mark.parametrize("faults", [(0, 0, 0, 0), (0, 0, UNDECODABLE, 0)])
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (3, 4)])
def test_they_are_the_same_bytes_as_one_by_one(faults, start, stop):
    batch = a_batch(faults)
    frames = frames_of(records_of(batch, start, stop), TAG, (3, 1), 2**40, 123_456_789)
    single = [
        encode(Frame(TAG, 3, 1, 2**40 + number, 123_456_789, *batch.record(position)))
        for number, position in enumerate(range(start, stop))
    ]
    assert len(frames) == stop - start
    assert [bytes(frames.frame(number)) for number in range(len(frames))] == single
    whole = b"".join(LENGTH.pack(len(frame)) + frame for frame in single)
    assert bytes(frames.data[: int(frames.ends[-1])]) == whole
