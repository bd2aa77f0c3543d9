"""Traffic of a process over its own connections: real sockets of this process and recorded ones."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.collector.connections import ProcessTraffic, Traffic, read_connections

pytestmark = pytest.mark.unit

OWN = os.getpid()
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A connection from this process to itself: its opening and its accepted end."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with (
        socket.create_server((request.param, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as opened,
    ):
        accepted, _address = server.accept()
        with accepted:
            yield opened, accepted


def carry(from_: socket.socket, to: socket.socket, size: int) -> None:
    """Send bytes and wait until they were received."""
    from_.sendall(bytes(size))
    while size:
        size -= len(to.recv(size))


def until_acknowledged(inode: int, size: int) -> Traffic:
    """The traffic of a connection once its peer's acknowledgement of `size` bytes has come."""
    while True:
        read = read_connections()
        assert read is not None
        if read[inode].sent >= size:
            return read[inode]


def test_linux_counts_what_each_end_of_a_connection_carried(pair: Pair) -> None:
    opened, accepted = pair
    inodes = [os.fstat(each.fileno()).st_ino for each in pair]
    carry(opened, accepted, 100_000)
    carry(accepted, opened, 300)
    ends = [until_acknowledged(inodes[0], 100_000), until_acknowledged(inodes[1], 300)]
    assert ends == [Traffic(300, 100_001), Traffic(100_000, 300)]  # and its opening


def test_a_process_has_the_traffic_of_its_connections_also_of_those_that_ended(pair: Pair) -> None:
    opened, accepted = pair
    traffic = ProcessTraffic()
    before = traffic.totals([OWN])[OWN]
    carry(opened, accepted, 5_000)
    until_acknowledged(os.fstat(opened.fileno()).st_ino, 5_000)
    after = traffic.totals([OWN])[OWN]
    assert after.received - before.received >= 5_000
    assert after.sent - before.sent >= 5_000
    opened.close()
    accepted.close()
    at_end = traffic.totals([OWN])[OWN]
    assert at_end.received >= after.received
    assert at_end.sent >= after.sent


class Recorded:
    """Connections by inode as they are next."""

    def __init__(self, proc: Path, files: dict[int, list[int]]) -> None:
        self.now: dict[int, Traffic] | None = {}
        for pid, inodes in files.items():
            (proc / str(pid) / "fd").mkdir(parents=True)
            for number, inode in enumerate(inodes):
                (proc / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
            (proc / str(pid) / "fd" / "99").symlink_to("/dev/null")
        self.traffic = ProcessTraffic(lambda: self.now, proc)

    def totals(self, now: dict[int, Traffic] | None, *pids: int) -> dict[int, Traffic]:
        self.now = now
        return self.traffic.totals(pids)


def test_growth_of_each_connection_counts_for_its_process_and_none_for_others(
    tmp_path: Path,
) -> None:
    recorded = Recorded(tmp_path, {7: [100, 101], 8: [102]})
    first = {100: Traffic(10, 1), 101: Traffic(20, 2), 102: Traffic(40, 4), 999: Traffic(80, 8)}
    assert recorded.totals(first, 7, 8) == {7: Traffic(30, 3), 8: Traffic(40, 4)}
    second = {100: Traffic(15, 1), 102: Traffic(40, 9), 999: Traffic(800, 80)}
    assert recorded.totals(second, 7, 8) == {7: Traffic(35, 3), 8: Traffic(40, 9)}
    assert recorded.totals({102: Traffic(41, 9)}, 8) == {8: Traffic(41, 9)}


def test_a_connection_with_the_inode_of_an_ended_one_counts_anew(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, {7: [100]})
    recorded.totals({100: Traffic(1_000, 1_000)}, 7)
    assert recorded.totals({100: Traffic(3, 4)}, 7) == {7: Traffic(1_003, 1_004)}


def test_a_connection_that_a_parent_and_its_child_have_counts_once(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, {7: [100], 8: [100]})
    now = {100: Traffic(10, 1)}
    assert recorded.totals(now, 7, 8) == {7: Traffic(10, 1), 8: Traffic(0, 0)}


def test_nothing_is_known_where_the_system_does_not_tell_it(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, {7: [100]})
    assert recorded.totals(None, 7) == {}
