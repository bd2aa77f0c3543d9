"""Frames that are sent together arrive as frames, each by itself."""

import socket
import time

import pyarrow as pa
import pytest

from schemas.frame import HEAD_BYTES, MAX_DATAGRAM_BYTES, MAX_FRAME_BYTES, Frame, encode
from services.generator.frame_batch import frames_of
from services.generator.librdkafka import ClientError
from services.generator.links import AT_ONCE, UdpLink, ZeromqLink, open_system_link
from services.runtime.frame_receivers import Refusal, UdpReceiver, ZeromqReceiver, open_receiver

pytestmark = pytest.mark.unit

HOST, TAG = "127.0.0.1", b"tag of r"
VALUES = [b"first", b"", b"third", bytes(9_000)]
DEADLINE_S = 30


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def frames(sequence, values=VALUES):
    records = pa.array([b"k"] * len(values), pa.binary()), pa.array(values, pa.binary())
    return frames_of(records, TAG, (0, 0), sequence, 5)


def singly(sequence):
    return [encode(Frame(TAG, 0, 0, sequence + n, 5, b"k", VALUES[n])) for n in range(len(VALUES))]


def until(receiver, count):
    """What was received, once there are `count` frames."""
    found, end_s = [], time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < end_s, found
        found += [data for data, _ in receiver.receive(0.05)]
    return found


def send(link, sequence):
    end_s = time.monotonic() + DEADLINE_S
    while not (count := link.send_all(frames(sequence))):
        assert time.monotonic() < end_s
        link.flush()
    assert count == len(VALUES)
    while not link.flush():
        assert time.monotonic() < end_s


@pytest.mark.parametrize("transport", ["tcp", "udp", "zeromq"])
def test_frames_arrive_as_they_were_sent_one_by_one(transport):
    port = free_port()
    receiver = open_receiver(transport, HOST, port, TAG, are_packed=True)
    if transport == "zeromq":  # our receiver asks for a login
        link = ZeromqLink((HOST, port), TAG, are_packed=True)
    else:
        link = open_system_link(transport, (HOST, port), b"hello")
    while not link.send(b"single"):
        link.flush()
    send(link, 0)
    send(link, 4)
    expected = [b"single", *singly(0), *singly(4)]
    if transport == "tcp":
        expected.insert(0, b"hello")
    assert until(receiver, len(expected)) == expected
    link.close()
    receiver.close()


def test_frames_of_one_message_of_zeromq_have_one_time_and_a_rest_is_refused():
    port, times = free_port(), iter(range(100, 200))
    receiver = ZeromqReceiver(HOST, port, TAG, clock_ns=lambda: next(times), are_packed=True)
    link = ZeromqLink((HOST, port), TAG, are_packed=True)
    send(link, 0)
    send(link, 4)
    received = []
    while len(received) < 2:
        received += list(receiver.receive_all(0.05))
    assert [(list(each), each.received_ns) for each in received] == [
        (singly(0), 100),
        (singly(4), 101),
    ]
    ours = ZeromqLink((HOST, port), TAG)
    while not ours.send(b"\x00\x00\x00\x02ab\x00\x00\x00\x03c"):
        continue
    received = []
    while len(received) < 2:
        received += list(receiver.receive_all(0.05))
    whole, rest = received
    assert list(whole) == [b"ab"]
    assert rest == Refusal(b"\x00\x00\x00\x03c", "the message does not end with a frame", 102)
    for each in (link, ours, receiver):
        each.close()


def test_large_frames_are_sent_in_messages_that_receivers_take():
    """200 frames of 8,000 bytes, and one of the largest size, which is alone in its message."""
    port = free_port()
    receiver = ZeromqReceiver(HOST, port, TAG, are_packed=True)
    link = ZeromqLink((HOST, port), TAG, are_packed=True)
    sizes = [8_000] * AT_ONCE
    sizes[50] = MAX_FRAME_BYTES - HEAD_BYTES - 1
    large = frames(0, [bytes(size) for size in sizes])
    sent, received, end_s = 0, [], time.monotonic() + DEADLINE_S
    while len(received) < AT_ONCE:
        assert time.monotonic() < end_s, len(received)
        if not sent:
            sent = link.send_all(large)
        elif sent < AT_ONCE:
            sent += link.send(large.frame(sent))
        received += [bytes(each) for some in receiver.receive_all(0.05) for each in some]
    assert received == [bytes(large.frame(number)) for number in range(AT_ONCE)]
    link.close()
    receiver.close()


def test_datagrams_of_one_call_have_one_time():
    port, times = free_port(), iter(range(100, 200))
    receiver = UdpReceiver(HOST, port, lambda: next(times))
    link = UdpLink((HOST, port))
    send(link, 0)
    received = []
    while sum(map(len, received)) < len(VALUES):
        received += list(receiver.receive_all(0.05))
    assert [list(each) for each in received] == [singly(0)]
    assert received[0].received_ns == 100
    link.close()
    receiver.close()


def test_datagrams_to_nobody_are_lost_and_the_link_says_so():
    with socket.socket(type=socket.SOCK_DGRAM) as kept:  # so that no other test has the port
        kept.bind((HOST, 0))
        kept.connect(kept.getsockname())  # it receives nothing but its own datagrams
        link = UdpLink(kept.getsockname())
        end_s = time.monotonic() + DEADLINE_S
        while not link.last_error:
            assert time.monotonic() < end_s
            assert link.send_all(frames(0)) == len(VALUES)
        assert "a datagram was refused" in link.last_error
        link.close()


def test_a_record_that_fits_into_no_datagram_ends_the_load():
    link = UdpLink((HOST, free_port()))
    with pytest.raises(ClientError, match="a record of 65508 bytes does not fit"):
        link.send_all(frames(0, [b"a", bytes(MAX_DATAGRAM_BYTES - 34)]))
    link.close()
