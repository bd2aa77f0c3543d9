"""Data received from sockets, and how much a receiver buffers for unknown clients."""

import socket
import time
from contextlib import contextmanager, suppress

import pytest

from schemas.frame import LENGTH, MAX_FRAME_BYTES, ZEROMQ_USER
from services.runtime.frame_receivers import (
    LIMITS,
    PATIENCE_S,
    ConnectionLimits,
    Refusal,
    TcpReceiver,
    UdpReceiver,
    ZeromqReceiver,
    open_receiver,
)

pytestmark = pytest.mark.unit

HOST = "127.0.0.1"


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def until(receiver, count, deadline_s=30):
    """The received records, once there are `count`."""
    found = []
    end = time.monotonic() + deadline_s
    while len(found) < count:
        assert time.monotonic() < end, found
        found += [data for data, _ in receiver.receive(0.05)]
    return found


class Clock:
    """The receiver's clock: advanced by the test only."""

    now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@contextmanager
def opened(*options):
    """A receiver by TCP, and a function that connects to it."""
    port, clients = free_port(), []
    receiver = TcpReceiver(HOST, port, b"", *options)

    def connect():
        clients.append(socket.create_connection((HOST, port), timeout=5))
        return clients[-1]

    yield receiver, connect
    receiver.close()
    for client in clients:
        client.close()


@pytest.fixture
def tcp(clock):
    with opened(LIMITS, clock) as receiver:
        yield receiver


def framed(data):
    return LENGTH.pack(len(data)) + data


def test_frames_by_tcp_come_whole_however_they_are_cut(tcp):
    receiver, connect = tcp
    client = connect()
    for byte in framed(b"first") + framed(b""):
        client.send(bytes([byte]))
    client.send(framed(b"second") + framed(b"third")[:3])
    assert until(receiver, 3) == [b"first", b"", b"second"]
    client.send(framed(b"third")[3:])
    assert until(receiver, 1) == [b"third"]


def test_a_frame_that_is_too_long_ends_its_connection_before_it_comes(tcp):
    receiver, connect = tcp
    client = connect()
    client.send(framed(b"good") + LENGTH.pack(MAX_FRAME_BYTES + 1) + b"x")
    good, refused = until(receiver, 2)
    assert good == b"good"
    assert "1048577 bytes exceeds the limit" in refused.reason
    assert client.recv(1) == b""


def test_a_frame_that_comes_too_slowly_ends_its_connection(tcp, clock):
    receiver, connect = tcp
    client = connect()
    client.send(framed(b"first") + framed(b"never whole")[:6])
    assert until(receiver, 1) == [b"first"]
    clock.now_s += PATIENCE_S
    assert list(receiver.receive(0.05)) == []
    clock.now_s += 0.1
    (refused,) = until(receiver, 1)
    assert isinstance(refused, Refusal)
    assert "in time" in refused.reason
    assert client.recv(1) == b""


def test_a_frame_has_time_to_come_however_long_there_was_none_before_it(tcp, clock):
    receiver, connect = tcp
    client = connect()
    client.send(framed(b"first"))
    assert until(receiver, 1) == [b"first"]
    clock.now_s += 2 * PATIENCE_S
    assert list(receiver.receive(0.05)) == []
    client.send(framed(b"second")[:6])
    assert list(receiver.receive(0.05)) == []
    client.send(framed(b"second")[6:])
    assert until(receiver, 1) == [b"second"]


def test_a_connection_that_ends_within_a_frame_is_told(tcp):
    receiver, connect = tcp
    client = connect()
    client.send(framed(b"half")[:6])
    client.close()
    (refused,) = until(receiver, 1)
    assert (refused.data, refused.reason) == (
        framed(b"half")[:6],
        "the connection closed within a frame",
    )


@pytest.fixture
def three(clock):
    with opened(ConnectionLimits(connections=3), clock) as receiver:
        yield receiver


def test_connections_are_bounded_and_idle_ones_give_way(three, clock):
    receiver, connect = three
    oldest = connect()
    list(receiver.receive(5))
    clock.now_s += LIMITS.greeting_s / 2
    for _ in range(2):
        connect()
        list(receiver.receive(5))
    late = connect()
    list(receiver.receive(5))
    assert receiver.turned_away == 1
    assert late.recv(1) == b""
    clock.now_s += LIMITS.greeting_s / 2
    welcome = connect()
    welcome.send(framed(b"here"))
    assert until(receiver, 1) == [b"here"]
    assert oldest.recv(1) == b""
    assert receiver.turned_away == 2


@pytest.fixture
def of_a_run():
    """A receiver of the run with the tag `tag of r`, with room for two connections; unknown clients
    may be replaced at once."""
    port = free_port()
    receiver = TcpReceiver(HOST, port, b"tag of r", ConnectionLimits(2, greeting_s=0.0))
    clients = []

    def connect(*frames):
        clients.append(socket.create_connection((HOST, port), timeout=5))
        for frame in frames:
            clients[-1].send(framed(frame))
        assert until(receiver, len(frames)) == list(frames)
        list(receiver.receive(0.05))
        return clients[-1]

    yield receiver, connect
    receiver.close()
    for one in clients:
        one.close()


def test_who_has_sent_a_frame_of_the_run_keeps_its_place_and_strangers_give_way(of_a_run):
    receiver, connect = of_a_run
    sender = connect(b"TGF1tag of r and more")
    stranger = connect(b"TGF1tag of q and more")
    assert receiver.turned_away == 0
    other = connect()
    assert stranger.recv(1) == b""
    third = connect(b"TGF1tag of r, me too")
    assert other.recv(1) == b""
    assert receiver.turned_away == 2
    late = connect()
    assert late.recv(1) == b""  # all clients are known now
    for one in (sender, third):
        one.send(framed(b"TGF1tag of r again"))
        assert until(receiver, 1) == [b"TGF1tag of r again"]
    assert receiver.turned_away == 3


def test_what_a_connection_sends_while_it_gives_way_ends_nothing(of_a_run):
    receiver, connect = of_a_run
    sender = connect(b"TGF1tag of r and more")
    stranger = connect()
    connect()
    for _ in range(20):
        another = socket.create_connection(sender.getpeername(), timeout=5)
        stranger.send(b"x")  # readable, although it was just closed
        list(receiver.receive(0.05))
        list(receiver.receive(0.0))
        stranger = another
    sender.send(framed(b"TGF1tag of r again"))
    assert b"TGF1tag of r again" in until(receiver, 1)
    stranger.close()


def test_hundreds_of_connections_leave_the_one_that_sends_alone(tcp):
    receiver, connect = tcp
    sender = connect()
    sender.send(framed(b"one"))
    assert until(receiver, 1) == [b"one"]
    for _ in range(300):
        connect()
        list(receiver.receive(0))
    for _ in range(300):
        list(receiver.receive(0))
    sender.send(framed(b"two"))
    assert until(receiver, 1) == [b"two"]
    assert receiver.turned_away >= 200


def test_a_datagram_is_a_frame():
    port = free_port()
    receiver = UdpReceiver(HOST, port)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for data in (b"a", b"", b"c" * 60_000):
        client.sendto(data, (HOST, port))
    assert until(receiver, 3) == [b"a", b"", b"c" * 60_000]
    client.close()
    receiver.close()


TAG = b"\x01\xff345678"
PASSWORD = TAG.hex()


def a_client(context, password=PASSWORD):
    """A sender of ZeroMQ; with an empty password one that does not log in."""
    import zmq

    client = context.socket(zmq.PUSH)
    client.setsockopt(zmq.LINGER, 0)  # otherwise a failing test would never end
    if password:
        client.setsockopt_string(zmq.PLAIN_USERNAME, ZEROMQ_USER)
        client.setsockopt_string(zmq.PLAIN_PASSWORD, password)
    return client


@pytest.mark.parametrize("password", ["", "not the tag"])
def test_a_sender_of_zeromq_that_does_not_log_in_is_not_heard(password):
    import zmq

    port = free_port()
    receiver = ZeromqReceiver(HOST, port, TAG)
    context = zmq.Context()
    stranger, client = a_client(context, password), a_client(context)
    stranger.setsockopt(zmq.IMMEDIATE, 1)
    stranger.connect(f"tcp://{HOST}:{port}")
    assert not stranger.poll(500, zmq.POLLOUT)
    client.connect(f"tcp://{HOST}:{port}")
    client.send(b"mine")
    assert until(receiver, 1) == [b"mine"]
    stranger.close(0)
    client.close(0)
    context.term()
    receiver.close()


def test_a_message_of_zeromq_is_a_frame_and_other_clients_change_nothing():
    import zmq

    port = free_port()
    receiver = ZeromqReceiver(HOST, port, TAG)
    stranger = socket.create_connection((HOST, port))
    stranger.send(b"GET / HTTP/1.1\r\n\r\n" + bytes(10_000))
    context = zmq.Context()
    client = a_client(context)
    client.connect(f"tcp://{HOST}:{port}")
    for number in range(3):
        client.send(b"%d" % number)
    assert until(receiver, 3) == [b"0", b"1", b"2"]
    stranger.close()
    client.close(0)
    context.term()
    receiver.close()


def test_of_what_nobody_reads_zeromq_keeps_little_and_the_rest_comes_later():
    import zmq

    port = free_port()
    receiver = ZeromqReceiver(HOST, port, TAG)
    context = zmq.Context()
    client = a_client(context)
    client.setsockopt(zmq.SNDHWM, 1)
    client.connect(f"tcp://{HOST}:{port}")
    sent = 0
    while sent < 100 and client.poll(500, zmq.POLLOUT):
        client.send(bytes(MAX_FRAME_BYTES))
        sent += 1
    assert sent < 100  # 16, plus the buffers of the system's sockets
    assert [len(data) for data in until(receiver, sent, 60)] == sent * [MAX_FRAME_BYTES]
    client.close(0)
    context.term()
    receiver.close()


def test_connections_to_zeromq_are_bounded_and_who_was_there_stays():
    import zmq

    port = free_port()
    receiver = ZeromqReceiver(HOST, port, TAG, ConnectionLimits(connections=3))
    context = zmq.Context()
    client = a_client(context)
    client.connect(f"tcp://{HOST}:{port}")
    client.send(b"first")
    assert until(receiver, 1) == [b"first"]
    strangers = [socket.create_connection((HOST, port), timeout=5) for _ in range(10)]
    end = time.monotonic() + 30
    while receiver.turned_away < 8:
        assert time.monotonic() < end, receiver.turned_away
        list(receiver.receive(0.05))
    greetings = [one.recv(10) for one in strangers]
    # libzmq greets accepted clients; two stay connected, the others reach the end of the stream.
    ended = [one for one, said in zip(strangers, greetings, strict=True) if is_ended(one, said)]
    assert len(ended) == receiver.turned_away == 8
    client.send(b"second")
    assert until(receiver, 1) == [b"second"]
    strangers[0].close()
    strangers[1].close()
    client.close(0)
    context.term()
    receiver.close()
    for one in strangers:
        one.close()


def is_ended(one, said):
    """Whether a connection is at its end after the data read so far; sends nothing."""
    one.settimeout(0.2)
    with suppress(TimeoutError, ConnectionResetError):
        while said:
            said = one.recv(64)
        return True
    return not said


def test_a_port_that_is_taken_is_an_os_error():
    port = free_port()
    with socket.create_server((HOST, port)):
        for kind in ("tcp", "zeromq"):
            with pytest.raises(OSError, match="in use"):
                open_receiver(kind, HOST, port, b"")
