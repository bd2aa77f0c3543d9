"""Which process a watch runs in, and what is read of several in one."""

import io
import subprocess

import pytest

from services.watcher import seats as module
from services.watcher.seats import ENDED, MOST_BUSY, OF, OWN, SEATS, SHOWN, Seats

pytestmark = pytest.mark.unit


class Process:
    """A process of one watch or several. told: lines that it was given."""

    def __init__(self):
        self.returncode = None
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()

    @property
    def told(self):
        return self.stdin.getvalue().decode().splitlines()

    def writes(self, name, line):
        self.stdout = io.BytesIO(name.encode() + OF + line + b"\n")

    def poll(self):
        return self.returncode

    def kill(self):
        self.returncode = -9

    def wait(self):
        return self.returncode


class Started:
    """Records started processes and their arguments."""

    def __init__(self):
        self.arguments, self.processes = [], []

    def __call__(self, module, *arguments):
        self.arguments.append((module.rpartition(".")[2], *arguments))
        self.processes.append(Process())
        return self.processes[-1]


@pytest.fixture
def started():
    return Started()


@pytest.fixture
def seats(started):
    result = Seats(started)
    for number in range(OWN):
        result.start(f"own-{number}", False)
    return result


def test_the_first_watches_have_processes_of_their_own_and_others_share(started, seats):
    for number in range(SEATS + 1):
        seats.start(f"w-{number}", number == 1)
    assert started.arguments == [
        *(("process", f"own-{number}") for number in range(OWN)),
        ("hosting", "shared-1"),
        ("hosting", "shared-2"),
    ]
    first, second = started.processes[OWN:]
    assert first.told[:3] == ["watch w-0", "conclude w-1", "watch w-2"]
    assert second.told == [f"watch w-{SEATS}"]


def test_a_process_that_ended_makes_room_for_another_of_its_own(started, seats):
    started.processes[0].returncode = 1
    seats.start("w", False)
    assert started.arguments[-1] == ("process", "w")


def test_the_output_of_a_seat_is_that_of_its_own_process(started, seats):
    one, other = seats.start("one", False), seats.start("other", False)
    shared = started.processes[-1]
    shared.stdout = io.BytesIO(b"one" + OF + SHOWN + b"1\nother" + OF + SHOWN + b"2\none" + OF)
    assert one.poll() is None
    shared.stdout = io.BytesIO(SHOWN + b"3\n")
    assert one.poll() is None
    assert one.stdout.read(9) == SHOWN + b"1\n" + SHOWN + b"3\n"
    assert other.stdout.read(9) == SHOWN + b"2\n"
    assert other.stdout.read(9) == b""


@pytest.mark.parametrize(("reason", "code"), [(b"", 0), (b"The topic is gone.", 1)])
def test_a_watch_that_ends_leaves_its_seat_and_no_other(started, seats, reason, code):
    one, other = seats.start("one", False), seats.start("other", False)
    started.processes[-1].writes("one", ENDED + reason)
    seats.look()
    assert (one.poll(), other.poll()) == (code, None)
    assert one.stdout.read(99) == reason
    seats.start("one", False)
    assert started.processes[-1].told[-1] == "watch one"


def test_all_watches_of_a_process_that_was_killed_have_ended(started, seats):
    watches = [seats.start(name, False) for name in ("one", "other")]
    started.processes[-1].writes("one", ENDED + b"first")
    started.processes[-1].kill()
    assert [each.poll() for each in watches] == [1, -9]
    seats.look()
    assert not seats.is_leaving("other")
    seats.start("other", False)
    assert started.arguments[-1] == ("hosting", "shared-2")


def test_a_watch_that_does_not_stop_is_left_until_it_has_ended(started, seats):
    one = seats.start("one", False)
    one.terminate()
    assert started.processes[-1].told == ["watch one", "stop one"]
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    one.kill()
    assert one.wait() is None
    seats.look()
    assert seats.is_leaving("one")
    started.processes[-1].writes("one", ENDED)
    seats.look()
    assert not seats.is_leaving("one")


def test_a_process_with_a_watch_that_never_stops_is_ended(started, seats):
    one, other = seats.start("one", False), seats.start("other", False)
    one.kill()
    one.left_s -= module.LEAVE_S + 1
    seats.look()
    assert (one.returncode, other.returncode) == (-9, -9)
    assert not seats.is_leaving("one")


def test_some_busy_watches_get_processes_of_their_own(started, seats):
    given = [seats.give_own(f"w-{number}") for number in range(MOST_BUSY + 1)]
    assert given == [True] * MOST_BUSY + [False]
    seats.start("w-0", False)
    assert started.arguments[-1] == ("process", "w-0")
    seats.start(f"w-{MOST_BUSY}", False)
    assert started.arguments[-1] == ("hosting", "shared-1")


def test_a_process_that_has_ended_can_be_told_nothing(started, seats):
    one = seats.start("one", False)
    started.processes[-1].stdin = BrokenPipe()
    one.terminate()
    started.processes[-1].kill()
    assert one.poll() == -9


class BrokenPipe:
    def write(self, _data):
        raise BrokenPipeError
