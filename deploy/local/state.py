"""Recorded state of a stack: `<data>/stack.json`, and the lock beside it.

The file is replaced atomically at every change and removed when the stack is down:

    {"version": 1,
     "stack_id": "…",              in the environment of every process as TIDEGAUGE_STACK_ID
     "phase": "starting",          or "running" or "stopping"
     "host": "127.0.0.1", "base_port": 17070,
     "kafka": "127.0.0.1:17070",   the Kafka used by the services
     "owner": {"pid": 1, "birth": "…/4711"},   the process that started the stack
     "detached": false,            true if the owner has no terminal
     "services": [{"name": "kafka", "pid": 2, "birth": "…/4712", "state": "ready", "restarts": 0}]}

birth distinguishes a process from later ones with its pid (services/runtime/process_identity.py). A
service's state is "starting", "ready" or "restarting" (it has ended and will be restarted);
restarts counts its restarts. Services are in the order of their first start; each leads a session
whose id is its pid.

The data folder is private: only its owner can list, read or change its content.

A failure of a stack is one sentence, and the last lines of the relevant log.
"""

import fcntl
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

TAIL_BYTES = 64 * 1024
# All files of a stack are closed to others.
UMASK = 0o077
FOLDER_MODE = 0o700
LOCK_NAME = "stack.lock"
# Any of these identifies a data folder, also a restored one.
OWN_NAMES = frozenset({LOCK_NAME, "kafka", "clickhouse"})
STARTING, RUNNING, STOPPING = "starting", "running", "stopping"
READY, RESTARTING = "ready", "restarting"
VERSION = 1
LOCK_POLL_S = 0.1


class StackError(Exception):
    """The stack cannot start or continue; the text is one sentence.

    log_tail: last lines of the part's log, oldest first.
    """

    def __init__(self, text: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.log_tail = log_tail


class StackStoppedError(StackError):
    """Another tidegauge stopped the stack; nothing crashed."""


def crashed(name: str, code: int | None, log: Path) -> StackError:
    """A part exited unexpectedly. code: of subprocess, negative for a signal; None is unknown."""
    return StackError(f"{name} {ending(code)}; its log is {log}", tail(log))


def not_ready(name: str, timeout_s: float, log: Path) -> StackError:
    """A part runs but does not become ready."""
    return StackError(f"{name} was not ready within {timeout_s:g} s; its log is {log}", tail(log))


def worn_out(name: str, how: str, restarts: int, log: Path) -> StackError:
    """A part has exited too often. how: its last exit."""
    tries = f" after {restarts} restart{'' if restarts == 1 else 's'}" if restarts else ""
    return StackError(f"{name} {how}{tries}; its log is {log}", tail(log))


def unwritable(error: OSError, folder: Path) -> StackError:
    """The state folder is not writable: the disk is full, or the folder belongs to another user."""
    return StackError(f"{error.filename or folder} cannot be used: {error.strerror or error}")


def ending(code: int | None) -> str:
    """How a process ended, as the end of a sentence that begins with its name."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was terminated by {signal.Signals(-code).name}"
    except ValueError:
        return f"was terminated by signal {-code}"


def tail(log: Path, lines: int = 12) -> tuple[str, ...]:
    """The last non-empty lines of a log; none without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple([line.rstrip() for line in text.splitlines() if line.strip()][-lines:])


def check_owner(data: Path) -> None:
    """Raise StackError if the folder, or a link in its place, belongs to another user.

    A missing folder is accepted.
    """
    with suppress(FileNotFoundError):
        for result in (data.lstat(), data.stat()):
            if result.st_uid != os.geteuid():
                raise StackError(
                    f"the data folder {data} belongs to another user (uid {result.st_uid});"
                    " choose another one with --data",
                )


def make_private(data: Path, on_progress: Callable[[str], None]) -> None:
    """Create the folder if missing, and close it to others. Raises StackError, OSError.

    Only empty folders and existing data folders are closed: a shared folder given by mistake is
    left unchanged and refused.
    """
    check_owner(data)
    data.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    check_owner(data)
    mode = stat.S_IMODE(data.stat().st_mode)
    if not mode & UMASK:
        return
    names = {path.name for path in data.iterdir()}
    if names and not names & OWN_NAMES:
        raise StackError(
            f"the data folder {data} is accessible to other users (mode {mode:04o}) and has other"
            " files; choose another one with --data",
        )
    data.chmod(FOLDER_MODE)
    on_progress(f"removed access of other users to {data}")


class LockTimeoutError(Exception):
    """Another process held the lock for too long."""


@dataclass(frozen=True)
class Identity:
    """Unique identity of a process: pid and birth (services/runtime/process_identity.py)."""

    pid: int
    birth: str


@dataclass(frozen=True)
class ServiceState:
    """One part of a recorded stack."""

    name: str
    pid: int
    birth: str
    state: str
    restarts: int = 0

    @property
    def identity(self) -> Identity:
        """The identity of its process."""
        return Identity(self.pid, self.birth)


@dataclass(frozen=True)
class StackState:
    """A recorded stack; the module docstring describes the fields."""

    stack_id: str
    phase: str
    host: str
    base_port: int
    owner: Identity
    detached: bool = False
    services: tuple[ServiceState, ...] = ()
    kafka: str = ""

    def with_service(self, service: ServiceState) -> "StackState":
        """This state with one service added or replaced."""
        if any(known.name == service.name for known in self.services):
            services = tuple(service if s.name == service.name else s for s in self.services)
            return replace(self, services=services)
        return replace(self, services=(*self.services, service))


class StateFile:
    """Reads and writes `stack.json` of one data folder."""

    def __init__(self, data: Path) -> None:
        self._path = data / "stack.json"
        self._lock_path = data / LOCK_NAME

    def read(self) -> StackState | None:
        """The recorded state; None if there is none, or if another version of this program wrote
        it."""
        try:
            fields = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        if fields.pop("version", None) != VERSION:
            return None
        services = tuple(ServiceState(**service) for service in fields.pop("services"))
        return StackState(**{**fields, "owner": Identity(**fields["owner"])}, services=services)

    def write(self, state: StackState) -> None:
        """Replace the recorded state atomically. Raises OSError and keeps the old state."""
        with self._changing():
            self._replace(state)

    def record(self, stack_id: str, service: ServiceState) -> StackState | None:
        """Record a service of a running stack; returns None and changes nothing if the stack is
        stopping or gone, also with its folder."""
        if not self._path.exists():
            return None
        with self._changing():
            result = self.read()
            if result is None or (result.stack_id, result.phase) != (stack_id, RUNNING):
                return None
            state = result.with_service(service)
            self._replace(state)
            return state

    def _replace(self, state: StackState) -> None:
        new = self._path.with_suffix(f".{os.getpid()}")
        try:
            new.write_text(json.dumps({"version": VERSION, **asdict(state)}, indent=1) + "\n")
            new.replace(self._path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def remove(self) -> None:
        """Record that no stack is running."""
        with self._changing():
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make reading and changing the file atomic. Held briefly, by owners that restart a part
        while another process stops the stack."""
        with self._path.with_suffix(".changing").open("a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield

    @contextmanager
    def locked(self, timeout_s: float, on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the lock of this data folder; only its holder starts or stops anything.

        The kernel releases it when the holder dies. Raises LockTimeoutError.
        """
        deadline = time.monotonic() + timeout_s
        self._lock_path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock_path.open("a") as file:
            waited = False
            while not _try_lock(file.fileno()):
                if not waited:
                    on_wait()
                    waited = True
                if time.monotonic() > deadline:
                    raise LockTimeoutError(f"{self._lock_path} is held by another tidegauge")
                time.sleep(LOCK_POLL_S)
            yield


def _try_lock(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
