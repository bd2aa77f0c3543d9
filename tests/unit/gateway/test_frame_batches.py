"""Frames that are split, checked and counted by the buffer are those of single ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.frame import (
    END,
    HEAD_BYTES,
    HELLO,
    LENGTH,
    MAX_FRAME_BYTES,
    Frame,
    FrameError,
    checked,
    encode,
)
from services.runtime.frame_batches import HEADS, ReceivedFrames, checked_frames
from services.runtime.frame_counts import Arrivals

pytestmark = pytest.mark.unit

TAG, OTHER, TOPICS = b"\x00tag of\xff", b"\x00tag of\xfe", 3
FRAMES = st.builds(
    Frame,
    st.sampled_from([TAG, TAG, TAG, OTHER]),
    st.sampled_from([0, 1, 63, 65_535]),
    st.sampled_from([0, 2, 3, END, HELLO]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=5),
    st.binary(max_size=9),
).map(encode)
DAMAGED = st.tuples(FRAMES, st.integers(0, HEAD_BYTES - 1), st.integers(0, 255)).map(
    lambda some: some[0][: some[1]] + bytes([some[2]]) + some[0][some[1] + 1 :]
)
DATA = st.lists(st.one_of(FRAMES, FRAMES, DAMAGED, st.binary(max_size=50)), max_size=8)


@given(DATA, st.data())
def test_frames_of_a_stream_come_whole_however_it_is_cut(frames, data):
    whole = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    found, rest = [], b""
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        received = ReceivedFrames.of_stream(rest + whole[begin:end], 7)
        found += list(received)
        rest = received.data[received.rest :]
        assert (received.oversized, received.received_ns) == (0, 7)
    assert (found, rest) == (frames, b"")


@given(DATA, st.binary(max_size=10))
def test_frames_before_an_oversized_one_come_and_nothing_after_it(frames, after):
    whole = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    received = ReceivedFrames.of_stream(whole + LENGTH.pack(MAX_FRAME_BYTES + 1) + after, 0)
    assert list(received) == frames
    assert (received.rest, received.oversized) == (len(whole), MAX_FRAME_BYTES + 1)


@given(DATA, st.booleans())
def test_frames_are_accepted_and_refused_as_one_by_one(frames, is_stream):
    if is_stream:
        whole = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
        received = ReceivedFrames.of_stream(whole, 0)
    else:
        received = ReceivedFrames.of_messages(frames, 0)
    assert list(received) == frames
    accepted = []
    for frame in frames:
        try:
            accepted.append((frame, checked(frame, TAG, TOPICS)))
        except FrameError:
            continue
    found = checked_frames(received, TAG, TOPICS)
    assert [found.frame(number) for number in range(len(found))] == [data for data, _ in accepted]
    assert list(found.records()) == [(frame.key, frame.value) for _, frame in accepted]
    names = ("stream", "topic", "sequence", "sent_ns")
    heads = zip(*(found.heads[name].tolist() for name in names), strict=True)
    assert list(heads) == [frame[1:5] for _, frame in accepted]
    assert found.refused == len(frames) - len(accepted)
    is_kept = found.heads["topic"] == 2
    kept = found.where(is_kept)
    expected = [(frame.key, frame.value) for _, frame in accepted if frame.topic == 2]
    assert list(kept.records()) == expected


STREAMS = st.sampled_from([0, 1, 63, 64])
NUMBERS = st.one_of(st.integers(0, 12), st.integers(900, 1_100), st.just(2**63))


@given(st.lists(st.lists(st.tuples(STREAMS, NUMBERS), max_size=12), max_size=4))
def test_frames_count_as_one_by_one(batches):
    single, together = Arrivals(120, timed=False), Arrivals(120, timed=False)
    for batch in batches:
        heads = np.zeros(len(batch), HEADS)
        heads["stream"] = [stream for stream, _ in batch]
        heads["sequence"] = np.array([number for _, number in batch], np.uint64)
        # A stream's frames are counted together, so a limit is reached in the order of streams.
        order = sorted(range(len(batch)), key=lambda row: batch[row][0])
        expected = dict(
            zip(
                order,
                [single.add(Frame(TAG, batch[row][0], 0, batch[row][1], 0), 0) for row in order],
                strict=True,
            )
        )
        found = together.add_all(heads)
        assert found.tolist() == [expected[row] for row in range(len(batch))]
    for stream in range(65):
        assert together.of_stream(stream) == single.of_stream(stream)
    for name in ("received", "sent", "lost", "duplicates", "refused"):
        assert getattr(together, name) == getattr(single, name)
