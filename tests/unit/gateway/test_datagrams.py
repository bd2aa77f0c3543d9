"""Datagrams that one system call sends and receives are those of single ones."""

import socket
import sys

import numpy as np
import pytest

from services.runtime.datagrams import AT_ONCE, Datagrams

pytestmark = pytest.mark.unit

BATCHED = pytest.param(
    True, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has such calls")
)


def pair(*, is_batched):
    """Two ends, and their sockets."""
    receiving, sending = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
    receiving.bind(("127.0.0.1", 0))
    sending.connect(receiving.getsockname())
    ends = [Datagrams(each, is_batched=is_batched) for each in (sending, receiving)]
    return *ends, sending, receiving


def parts(messages):
    ends = np.cumsum([len(each) for each in messages])
    return memoryview(b"".join(messages)), ends - [len(each) for each in messages], ends


@pytest.mark.parametrize("is_batched", [BATCHED, False])
def test_datagrams_come_one_by_one_and_in_order(is_batched):
    sender, receiver, *sockets = pair(is_batched=is_batched)
    assert receiver.receive() == []
    messages = [b"a", b"", b"c" * 60_000, b"dd", b"\x00"]
    assert sender.send(*parts(messages)) == 5
    found = []
    while some := receiver.receive():
        found += some
    assert found == messages
    for each in sockets:
        each.close()


@pytest.mark.parametrize("is_batched", [BATCHED, False])
def test_who_sends_to_nobody_gets_an_error(is_batched):
    sender, _, sending, receiving = pair(is_batched=is_batched)
    receiving.close()
    assert sender.send(*parts([b"a"])) == 1
    with pytest.raises(ConnectionRefusedError):  # reported by the response to the first
        sender.send(*parts([b"a"]))
    sending.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has such calls")
def test_a_call_receives_many_and_the_next_call_the_others():
    sender, receiver, *sockets = pair(is_batched=True)
    messages = [b"%d" % number for number in range(AT_ONCE + 10)]
    assert sender.send(*parts(messages)) == len(messages)
    first, second, third = (receiver.receive() for _ in range(3))
    assert (first, second, third) == (messages[:AT_ONCE], messages[AT_ONCE:], [])
    for each in sockets:
        each.close()
