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

birth distinguishes a process from later ones with its pid (services/runtime/process.py). A
service's state is "starting", "ready" or "restarting" (it has ended and will be restarted);
restarts counts its restarts. Services are in the order of their first start; each leads a session
whose id is its pid.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deploy.local.data_folder import LOCK_NAME

STARTING, RUNNING, STOPPING = "starting", "running", "stopping"
READY, RESTARTING = "ready", "restarting"
VERSION = 1
LOCK_POLL_S = 0.1


class LockTimeoutError(Exception):
    """Another process held the lock for too long."""


@dataclass(frozen=True)
class Identity:
    """Unique identity of a process: pid and birth (services/runtime/process.py)."""

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
            found = self.read()
            if found is None or (found.stack_id, found.phase) != (stack_id, RUNNING):
                return None
            state = found.with_service(service)
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
