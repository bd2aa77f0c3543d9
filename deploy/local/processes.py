"""Starts processes with their own logs, identifies them later, and ends them with all children.

Every part of a stack is a session leader, so its session id identifies all its descendants, even
those that moved to another process group (an engine's workers may) or outlived it.

A recorded stack is stopped completely, dependents first.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from deploy.local.parts import StackPart
from deploy.local.state import (
    STARTING,
    STOPPING,
    UMASK,
    Identity,
    ServiceState,
    StackError,
    StackState,
    StateFile,
)
from services.runtime.process_identity import birth_of

MARK = "TIDEGAUGE_STACK_ID"
LEFTOVER_GRACE_S = 2.0
KILL_TIMEOUT_S = 5.0
DYING_TIMEOUT_S = 10.0
MOST_NICENESS = 19
POLL_S = 0.05
UNKNOWN_PART_TIMEOUT_S = 10.0
OWNER_GRACE_S = 10.0


class NotEndedError(StackError):
    """Processes remain after SIGKILL; the text names them."""


def spawn(
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    niceness: int = 0,
    *,
    is_told: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process as session leader, with its output in a new log.

    The previous log is kept as `NAME.log.1`. niceness: added to that of this process. is_told:
    whether its standard input is a pipe from this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE if is_told else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=UMASK,
        )
    if niceness:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process.pid, min(own + niceness, MOST_NICENESS))
    return process


def identify(pid: int) -> Identity:
    """The identity of a running process. Raises psutil.NoSuchProcess."""
    return Identity(pid, birth_of(pid))


def is_alive(identity: Identity) -> bool:
    """Whether this process runs; zombies do not count."""
    with suppress(psutil.NoSuchProcess):
        return _is_there(psutil.Process(identity.pid)) and identify(identity.pid) == identity
    return False


def exit_code(process: "subprocess.Popen[bytes]") -> int | None:
    """Exit code of a child that has ended or is about to, negative for a signal.

    The kernel reports it when the last thread has ended, which for a large process is a while after
    it became a zombie. None if that takes longer than DYING_TIMEOUT_S.
    """
    try:
        return process.wait(DYING_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def end(leaders: Sequence[Identity], mark: str, timeout_s: float) -> None:
    """End processes and their sessions; returns when none of them is left.

    The leaders get SIGTERM and end their children. Processes that remain after `timeout_s`, or
    outlive their leader, get SIGTERM and SIGKILL. Ctrl-C proceeds to SIGKILL at once. Raises
    NotEndedError.
    """
    pids = {leader.pid for leader in leaders}
    seen: set[psutil.Process] = set()

    def left() -> list[psutil.Process]:
        # A dying process has lost its environment but still holds its ports, so remember members
        # until they are gone.
        seen.update(_members(leaders, mark))
        return [process for process in seen if _is_there(process)]

    def leaders_left() -> list[psutil.Process]:
        return [process for process in left() if process.pid in pids]

    try:
        _signal(leaders_left(), signal.SIGTERM)
        wait_until(lambda: not leaders_left(), timeout_s)
        _signal(left(), signal.SIGTERM)
        wait_until(lambda: not left(), LEFTOVER_GRACE_S)
    except KeyboardInterrupt:
        pass
    _signal(left(), signal.SIGKILL)
    if not wait_until(lambda: not left(), KILL_TIMEOUT_S):
        raise NotEndedError(f"these processes do not exit: {', '.join(str(p.pid) for p in left())}")


def marked(mark: str) -> tuple[Identity, ...]:
    """All processes with the id of a stack in their environment."""
    result = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if mark_of(process) == mark and process.status() != psutil.STATUS_ZOMBIE:
                result.append(identify(process.pid))
    return tuple(result)


def marks_of(data: Path) -> set[str]:
    """The ids of the stacks whose processes have this data folder in their environment."""
    result = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if MARK in environment and environment.get("TIDEGAUGE_DATA") == str(data.absolute()):
                result.add(environment[MARK])
    return result


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds; returns whether it does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _members(leaders: Iterable[Identity], mark: str) -> Iterator[psutil.Process]:
    """The leaders and the processes in their sessions."""
    sessions = {leader.pid: leader for leader in leaders}
    for pid in psutil.pids():
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            leader = sessions.get(pid) or sessions.get(os.getsid(pid))
            if leader is None:
                continue
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            # Without its leader, the session may be an unrelated one with the same id.
            if is_alive(leader) or mark_of(process) == mark:
                yield process


def mark_of(process: psutil.Process) -> str | None:
    """The id of the stack that a process belongs to; None if it belongs to none, or is another
    user's."""
    with suppress(psutil.Error):
        mark: str | None = process.environ().get(MARK)
        return mark
    return None


def _is_there(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def end_stack(file: StateFile, stack_state: StackState, parts: Sequence[StackPart]) -> None:
    """Stop all processes of a recorded stack, then remove the record. Raises NotEndedError if some
    remain.

    It is first recorded as stopping, so that its owner does not treat the exits as crashes. If
    nothing can be written, the record is removed first, which the owner understands too. The
    processes are ended even if the folder is gone or read-only.
    """
    try:
        file.write(replace(stack_state, phase=STOPPING))
    except OSError:
        with suppress(OSError):
            file.remove()
    end_processes(stack_state, parts)
    with suppress(FileNotFoundError):
        file.remove()
    _end_owner(stack_state)


def end_processes(stack_state: StackState, parts: Sequence[StackPart]) -> None:
    """Stop all processes of a stack. Raises NotEndedError if some remain."""
    known = {part.name: part for part in parts}
    for batch in stop_order(stack_state.services, known):
        timeouts = [known[s.name].stop_timeout_s for s in batch if s.name in known]
        timeout_s = max(timeouts, default=UNKNOWN_PART_TIMEOUT_S)
        end([service.identity for service in batch], stack_state.stack_id, timeout_s)
    end(marked(stack_state.stack_id), stack_state.stack_id, 0)


def end_unrecorded(data: Path) -> bool:
    """Stop processes of stacks of a folder without a record of them: the folder was removed, or
    another version wrote the record. Returns whether there were any. Raises NotEndedError."""
    marks = marks_of(data)
    for mark in marks:
        end(marked(mark), mark, UNKNOWN_PART_TIMEOUT_S)
    return bool(marks)


def interrupt_start(stack_state: StackState | None) -> None:
    """Interrupt a detached process that is still starting its stack.

    It holds the lock, so `down` would otherwise wait for the end of the start.
    """
    if (
        stack_state
        and stack_state.detached
        and stack_state.phase == STARTING
        and stack_state.owner.pid != os.getpid()
    ):
        end([stack_state.owner], "", OWNER_GRACE_S)


def stop_order(
    services: Iterable[ServiceState], parts: Mapping[str, StackPart]
) -> Iterator[list[ServiceState]]:
    """Batches of services, each after everything that depends on it."""
    left = list(services)
    while left:
        needed = {name for s in left if s.name in parts for name in parts[s.name].after}
        batch = [service for service in left if service.name not in needed] or left
        yield batch
        left = [service for service in left if service not in batch]


def _end_owner(stack_state: StackState) -> None:
    """Wait for a detached owner to notice that its stack is gone and exit, else end it."""
    if not stack_state.detached or stack_state.owner.pid == os.getpid():
        return
    wait_until(lambda: not is_alive(stack_state.owner), OWNER_GRACE_S)
    if is_alive(stack_state.owner):
        end([stack_state.owner], "", 1)
