"""Frames and their counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.frame import END, HEAD_BYTES, MARKER, Frame, FrameError, decode, encode, tag_of
from services.runtime.frame_counts import Arrivals
from services.runtime.kafka import frame_tag
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit

TAG = tag_of("r1", "")


def frame(sequence, stream=0, topic=0, sent_ns=0):
    return Frame(TAG, stream, topic, sequence, sent_ns, b"k", b"v")


def test_a_frame_has_these_bytes():
    data = encode(Frame(b"12345678", 3, 1, 7, 9, b"key", b"value"))
    assert data == (
        b"TGF1" + b"12345678" + b"\x00\x03" + b"\x01\x00" + bytes(7) + b"\x07" + bytes(7) + b"\x09"
        b"\x00\x03" + b"keyvalue"
    )
    assert HEAD_BYTES == 34
    assert decode(data) == Frame(b"12345678", 3, 1, 7, 9, b"key", b"value")


def test_runs_have_tags_of_their_own():
    assert tag_of("r1", "") != tag_of("r2", "")
    assert len(TAG) == 8


def test_who_does_not_know_the_secret_does_not_know_the_tag():
    assert tag_of("r1", "secret") != tag_of("r1", "another")
    assert tag_of("r1", "secret") != TAG
    assert tag_of("r1", "secret") == tag_of("r1", "secret")


def test_the_tag_of_a_stack_needs_the_password_of_its_services(tmp_path):
    own, other = (ServiceSettings(data=tmp_path / name) for name in ("a", "b"))
    assert frame_tag(own, "r1") not in (TAG, frame_tag(other, "r1"))
    assert frame_tag(own, "r1") == tag_of("r1", own.kafka_secret.read_text().strip())
    elsewhere = ServiceSettings(data=tmp_path, kafka_bootstrap="kafka.example:9092")
    assert frame_tag(elsewhere, "r1") == TAG


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are fewer"),
        (bytes(HEAD_BYTES), "header is invalid"),
        (MARKER + bytes(HEAD_BYTES - 6) + b"\x00\x09", "key is longer"),
        (MARKER + bytes(1024 * 1024), "exceed the limit of a frame"),
        (MARKER + bytes(11) + b"\x01" + bytes(HEAD_BYTES), "header is invalid"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data, reason):
    with pytest.raises(FrameError, match=reason):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_frame_error(data):
    try:
        decode(MARKER + data)
    except FrameError:
        return
    assert len(data) >= HEAD_BYTES - 4


def test_what_was_sent_and_did_not_come_is_lost():
    found = Arrivals()
    assert [found.add(frame(n), 5_000) for n in (0, 1, 4, 1, 3)] == [True, True, True, False, True]
    assert (found.received, found.duplicates, found.sent, found.lost) == (4, 1, 5, 1)
    assert not found.ended
    assert not found.add(frame(9, topic=END), 0)
    assert found.ended
    assert (found.sent, found.lost) == (9, 5)


def test_every_stream_is_counted_for_itself():
    found = Arrivals()
    for stream in (0, 1):
        for sequence in range(10 + stream):
            found.add(frame(sequence, stream), 0)
    found.add(frame(10, 0, END), 0)
    assert not found.ended
    found.add(frame(11, 1, END), 0)
    assert (found.ended, found.sent, found.lost) == (True, 21, 0)


def test_transit_is_in_microseconds_and_never_negative():
    found = Arrivals()
    for number, received_ns in enumerate((1_000_000, 1_002_999, 1_900_000)):
        found.add(frame(number, sent_ns=1_000_500), received_ns)
    assert found.transit_us == {"p50": 2, "p99": 899, "max": 899}


def test_a_sequence_far_ahead_takes_no_memory():
    found = Arrivals(max_bytes=1_000)
    assert not found.add(frame(2**63), 0)
    assert not found.add(frame(0, stream=64), 0)
    assert found.add(frame(7_999), 0)
    assert not found.add(frame(0, stream=1), 0)
    assert (found.refused, found.received) == (3, 1)


def test_a_stream_that_has_not_ended_has_announced_no_frames():
    found = Arrivals(timed=False)
    for stream, sequence in ((0, 0), (0, 2), (1, 0)):
        found.add(frame(sequence, stream), 0)
    found.add(frame(4, topic=END), 0)
    assert [found.of_stream(stream) for stream in (0, 1, 2)] == [(4, 2), (None, 1), (None, 0)]
