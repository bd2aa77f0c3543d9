"""What runs, on disk: `<data>/stack.json`, and the lock beside it.

The file is replaced in one step whenever something changes and removed when the stack is down:

    {"version": 2,
     "stack_id": "…",              in the environment of every process as TIDEGAUGE_STACK_ID
     "phase": "starting",          or "running" or "stopping"
     "host": "127.0.0.1", "base_port": 17070,
     "kafka": "127.0.0.1:17070",   which Kafka the services use; empty in an older file
     "owner": {"pid": 1, "birth": "…/4711"},   the process that started the stack
     "detached": false,            true when the owner is nobody's terminal
     "services": [{"name": "kafka", "pid": 2, "birth": "…/4712", "state": "ready", "restarts": 0}]}

birth tells a process from others with its pid (services/runtime/process_identity.py), which may be
somebody else's by now. A service's state is "starting", "ready" or "restarting" (it has ended and
is started again in a moment); restarts is how often it was started again. The services are in the
order in which they were first started; each leads a session of its own, whose id is its pid.
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
VERSION = 2
LOCK_POLL_S = 0.1


class LockTimeoutError(Exception):
    """Another process kept the lock for too long."""


@dataclass(frozen=True)
class Identity:
    """One process, for ever: its pid and its birth (services/runtime/process_identity.py)."""

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
        """Which process it is."""
        return Identity(self.pid, self.birth)


@dataclass(frozen=True)
class StackState:
    """A recorded stack; the module's text describes the fields."""

    stack_id: str
    phase: str
    host: str
    base_port: int
    owner: Identity
    detached: bool = False
    services: tuple[ServiceState, ...] = ()
    kafka: str = ""

    def with_service(self, service: ServiceState) -> "StackState":
        """This state with one service added, or replaced."""
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
        """What is recorded; None when nothing is, or by another version of this program."""
        try:
            fields = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        if fields.pop("version", None) != VERSION:
            return None
        services = tuple(ServiceState(**service) for service in fields.pop("services"))
        return StackState(**{**fields, "owner": Identity(**fields["owner"])}, services=services)

    def write(self, state: StackState) -> None:
        """Replace what is recorded, in one step. Raises OSError, and what was recorded stays."""
        with self._changing():
            self._replace(state)

    def record(self, stack_id: str, service: ServiceState) -> StackState | None:
        """Record a service of a running stack; None, and nothing is changed, when the stack is
        being stopped or is gone."""
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
        """Record that nothing runs."""
        with self._changing():
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Between a look at the file and its change nobody else changes it. Held for moments, by
        owners that start a part again while another process stops the stack."""
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
