"""Processes of the watches: one each for as long as its file exists, and one to conclude a removed
watch that did not end by itself."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from schemas.events import WatchTrouble
from services.definitions.watches import kept_watches, positions
from services.runtime.events import Events

LEAST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
MOST_REASON_BYTES: Final = 1_000
LASTING_S: Final = 120.0  # a process that ran this long started well
STOP_TIMEOUT_S: Final = 8.0
log = structlog.get_logger()


@dataclass
class _Child:
    """A process of a watch. version: of its file. pause_s: delay before a restart. is_concluding:
    whether it only concludes a watch without a file."""

    process: "subprocess.Popen[bytes]"
    version: int
    began_s: float
    pause_s: float = LEAST_PAUSE_S
    again_s: float | None = None
    is_concluding: bool = False


def arguments(name: str, is_concluding: bool) -> list[str]:
    """The arguments of the process of a watch."""
    return ["--conclude", name] if is_concluding else [name]


def _start(name: str, is_concluding: bool) -> "subprocess.Popen[bytes]":
    """Start a process that ends when this process, which holds its standard input, ends. It writes
    nothing to standard output but the reason for its end."""
    command = [sys.executable, "-m", "services.watcher.process", *arguments(name, is_concluding)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _reason(process: "subprocess.Popen[bytes]") -> str:
    """What an ended process gave as the reason; empty if it was killed."""
    assert process.stdout is not None
    with process.stdout as output:
        return output.read(MOST_REASON_BYTES).decode(errors="replace").strip()


class WatchProcesses:
    """Starts, restarts and ends the processes of the watches of a data folder."""

    def __init__(
        self,
        data: Path,
        events: Events,
        start: Callable[[str, bool], "subprocess.Popen[bytes]"] = _start,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data = data
        self._events = events
        self._start = start
        self._clock_s = clock_s
        self._children: dict[str, _Child] = {}
        self._ending: dict[str, _Child] = {}

    def tick(self) -> None:
        """Start and stop processes so that exactly the wanted watches have one."""
        wanted = kept_watches(self._data)
        for name, child in list(self._children.items()):
            if wanted.get(name) != child.version:
                self._end([child.process])
                del self._children[name]
        for name in positions(self._data) - wanted.keys() - self._ending.keys():
            process = self._start(name, True)
            self._ending[name] = _Child(process, 0, self._clock_s(), is_concluding=True)
        for name, child in self._ending.items():
            if name not in wanted and child.process.poll():  # it could not conclude
                self._revive(name, child)
        at_it = {name for name, child in self._ending.items() if child.process.poll() is None}
        for name, version in wanted.items():
            if name in at_it:
                continue
            self._ending.pop(name, None)
            known = self._children.get(name)
            if known is None:
                self._children[name] = _Child(self._start(name, False), version, self._clock_s())
            else:
                self._revive(name, known)

    def close(self) -> None:
        """Stop all of them; they resume when the watcher starts again."""
        children = (*self._children.values(), *self._ending.values())
        self._end([child.process for child in children])

    def _revive(self, name: str, child: _Child) -> None:
        now_s = self._clock_s()
        if child.again_s is None and child.process.poll() is not None:
            lasted = now_s - child.began_s > LASTING_S
            child.pause_s = LEAST_PAUSE_S if lasted else min(2 * child.pause_s, MOST_PAUSE_S)
            child.again_s = now_s + child.pause_s
            event = WatchTrouble(
                kind="ended",
                watch=name,
                code=child.process.returncode,
                again_in_s=child.pause_s,
                reason=_reason(child.process),
            )
            log.warning("watch_ended", **event.detail)
            self._events.publish(event)
        elif child.again_s is not None and now_s >= child.again_s:
            child.process = self._start(name, child.is_concluding)
            child.began_s, child.again_s = now_s, None

    @staticmethod
    def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
        for process in processes:
            process.terminate()
        end_s = time.monotonic() + STOP_TIMEOUT_S
        for process in processes:
            try:
                process.wait(max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
