"""Where watches run, as the watcher sees it: in processes of their own, and in processes that small
ones share.

The first OWN watches have a process each, and so have those that took too much processor time in a
shared one. All others share processes of at most SEATS. What a watch writes is the same in both: on
standard output figures, a line each, and the reason for its end.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Final, Protocol, Self

OWN: Final = 4
SEATS: Final = 50
MOST_BUSY: Final = 8  # further ones stay where they are
LEAVE_S: Final = 60.0  # for a watch that was stopped; then its process is killed
MOST_REASON_BYTES: Final = 1_000
MOST_READ: Final = 1 << 20
SHOWN: Final = b"\x1e"  # before a line of figures; all else is the reason for the end
OF: Final = b"\x1f"  # after the name of the watch, in a line of a shared process
ENDED: Final = b"\x04"  # before the reason for its end in such a line; empty for none


class WatchOutput(Protocol):
    """What is read of a watch, without waiting."""

    def read(self, most: int, /) -> bytes | None:
        """What it has written since the last call; empty or None for nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class WatchProcess(Protocol):
    """The process of a watch, or its seat in a shared one, as `subprocess.Popen` has it."""

    returncode: int | None

    @property
    def stdout(self) -> WatchOutput | IO[bytes] | None:
        """Its output."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""

    def terminate(self) -> None:
        """Stop it; the next one resumes."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until it has ended. Raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """Do not wait for it any longer."""


def arguments(name: str, is_concluding: bool) -> list[str]:
    """The arguments of the process of a watch."""
    return ["--conclude", name] if is_concluding else [name]


def start_module(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a process that ends when this process, which holds its standard input, ends. It writes
    nothing to standard output but what a watch writes."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process


class _Buffer:
    """Output of a seat."""

    def __init__(self) -> None:
        self._rest = b""

    def write(self, data: bytes) -> None:
        self._rest += data

    def read(self, _most: int, /) -> bytes:
        data, self._rest = self._rest, b""
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Seat:
    """A watch in a shared process. left_s: when it was given up; None before."""

    def __init__(self, name: str, shared: "SharedProcess") -> None:
        self.name, self.stdout = name, _Buffer()
        self.returncode: int | None = None
        self.left_s: float | None = None
        self._shared = shared

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        self._shared.read()
        return self.returncode

    def terminate(self) -> None:
        """Stop it."""
        self._shared.tell("stop", self.name)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until it has ended or was given up. Raises subprocess.TimeoutExpired."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None and self.left_s is None:
            if end_s is not None and time.monotonic() >= end_s:
                raise subprocess.TimeoutExpired(self.name, timeout or 0.0)
            self._shared.wait()
        return self.returncode

    def kill(self) -> None:
        """Leave it to end by itself: it waits for its cluster, at most for a while."""
        self.left_s = time.monotonic()


class SharedProcess:
    """A process of several watches. process: started, with pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.seats: dict[str, Seat] = {}
        self._rest = b""

    def seat(self, name: str, is_concluding: bool) -> Seat:
        """Begin a watch in it."""
        seat = self.seats[name] = Seat(name, self)
        self.tell("conclude" if is_concluding else "watch", name)
        return seat

    def tell(self, verb: str, name: str) -> None:
        """Tell it what to do with a watch; nothing if it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{verb} {name}\n".encode())
            self.process.stdin.flush()
        except OSError:
            return

    def read(self) -> None:
        """Give to each seat what its watch has written."""
        assert self.process.stdout is not None
        code = self.process.poll()  # first: all that an ended process has written is read
        while data := self.process.stdout.read(MOST_READ) or b"":
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(*line.partition(OF)[::2])
        if code is not None:
            for seat in self.seats.values():
                seat.returncode = code
            self.seats.clear()

    def wait(self) -> None:
        """Wait a little for it to write."""
        time.sleep(0.02)

    def end(self) -> None:
        """Kill it; its watches resume elsewhere."""
        self.process.kill()
        self.process.wait()
        self.read()

    def _take(self, name: bytes, line: bytes) -> None:
        seat = self.seats.get(name.decode())
        if seat is None:
            return
        if line.startswith(ENDED):
            reason = line.removeprefix(ENDED)
            seat.stdout.write(reason)
            seat.returncode = 1 if reason else 0
            del self.seats[seat.name]
        else:
            seat.stdout.write(line + b"\n")


class Seats:
    """Starts watches, each in a process of its own or a shared one. start: a process, given its
    module and arguments."""

    def __init__(self, start: Callable[..., "subprocess.Popen[bytes]"] = start_module) -> None:
        self._start = start
        self._own: dict[str, subprocess.Popen[bytes]] = {}
        self._shared: list[SharedProcess] = []
        self._busy: set[str] = set()
        self._number = 0

    def start(self, name: str, is_concluding: bool) -> WatchProcess:
        """Start a watch, or only conclude what is left of it."""
        self._own = {each: process for each, process in self._own.items() if process.poll() is None}
        is_busy = name in self._busy
        if is_busy or len(self._own.keys() - self._busy) < OWN:
            own = self._start("services.watcher.process", *arguments(name, is_concluding))
            self._own[name] = own
            return own
        for shared in self._shared:
            if len(shared.seats) < SEATS and shared.process.poll() is None:
                return shared.seat(name, is_concluding)
        self._number += 1
        process = self._start("services.watcher.hosting", f"shared-{self._number}")
        self._shared.append(SharedProcess(process))
        return self._shared[-1].seat(name, is_concluding)

    def look(self) -> None:
        """Read what the watches of shared processes have written; end a process in which one does
        not stop."""
        for each in self._shared:
            each.read()
            left_s = [seat.left_s for seat in each.seats.values() if seat.left_s is not None]
            if left_s and time.monotonic() - min(left_s) > LEAVE_S:
                each.end()
        self._shared = [each for each in self._shared if each.process.poll() is None]

    def is_leaving(self, name: str) -> bool:
        """Whether a watch that was stopped has not ended, so that it cannot start."""
        return any(name in each.seats for each in self._shared)

    def give_own(self, name: str) -> bool:
        """Whether a watch gets a process of its own when it is started next."""
        if len(self._busy) < MOST_BUSY:
            self._busy.add(name)
        return name in self._busy

    def close(self) -> None:
        """End the shared processes, whose watches were stopped."""
        for each in self._shared:
            each.end()
