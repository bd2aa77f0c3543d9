"""Start a process with a log of its own, recognise it later, and end it with all its children.

Every part of a stack leads a session, so its session id names it and whatever it started, also
what has moved to another process group (an engine's workers may) and what outlived it.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.local.data_folder import UMASK
from deploy.local.failures import StackError
from deploy.local.state import Identity
from services.runtime.process_identity import birth_of

MARK = "TIDEGAUGE_STACK_ID"
LEFTOVER_GRACE_S = 2.0
KILL_TIMEOUT_S = 5.0
DYING_TIMEOUT_S = 10.0
MOST_NICENESS = 19
POLL_S = 0.05
MAX_LOG_BYTES = 64 * 1024 * 1024


class NotEndedError(StackError):
    """Processes are still there after SIGKILL; the text names them."""


def spawn(
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    niceness: int = 0,
    *,
    is_told: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process as leader of a session, its output appended to a new log.

    The log of the start before is kept as `NAME.log.1`. niceness: how far it gives way to others
    that want the same cores, added to that of this process. is_told: whether its standard input is
    a pipe from this process.
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
    """The identity of a process that runs. Raises psutil.NoSuchProcess."""
    return Identity(pid, birth_of(pid))


def is_alive(identity: Identity) -> bool:
    """Whether this very process runs; one that only waits to be reaped does not."""
    with suppress(psutil.NoSuchProcess):
        return _is_there(psutil.Process(identity.pid)) and identify(identity.pid) == identity
    return False


def exit_code(process: "subprocess.Popen[bytes]") -> int | None:
    """Exit code of a child that has ended or is about to, negative for a signal.

    The kernel tells it when the last thread is gone, which for a large process is a while after
    it has become a zombie. None when that takes longer than DYING_TIMEOUT_S.
    """
    try:
        return process.wait(DYING_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def end(leaders: Sequence[Identity], mark: str, timeout_s: float) -> None:
    """End processes and everything of their sessions; returns when none of it is left.

    The leaders get SIGTERM, and end their own children; what is there after `timeout_s`, or
    outlives its leader, gets SIGTERM and SIGKILL. Ctrl-C meanwhile goes on to SIGKILL at once.
    Raises NotEndedError.
    """
    pids = {leader.pid for leader in leaders}
    seen: set[psutil.Process] = set()

    def left() -> list[psutil.Process]:
        # What is dying has no environment any more but still has its ports: a member is known
        # until it is gone.
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
        raise NotEndedError(f"these processes do not end: {', '.join(str(p.pid) for p in left())}")


def marked(mark: str) -> tuple[Identity, ...]:
    """All processes that carry the id of a stack, whoever started them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if _mark_of(process) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(identify(process.pid))
    return tuple(found)


def bound_log(log: Path, limit: int = MAX_LOG_BYTES) -> None:
    """Start a log anew when it is larger than `limit` bytes; the writers append, so they go on."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > limit:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds; returns whether it does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _members(leaders: Iterable[Identity], mark: str) -> Iterator[psutil.Process]:
    """The leaders, and what runs in their sessions."""
    sessions = {leader.pid: leader for leader in leaders}
    for pid in psutil.pids():
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            leader = sessions.get(pid) or sessions.get(os.getsid(pid))
            if leader is None:
                continue
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            # Without its leader a session might be a stranger's with the same number.
            if is_alive(leader) or _mark_of(process) == mark:
                yield process


def _mark_of(process: psutil.Process) -> str | None:
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
