"""The whole stack on one machine: a Kafka broker and the services, started and stopped together.

    stack = Stack(settings)
    try:
        stack.up(print)
        while ...:
            stack.check()           # call periodically: restarts parts that have died
    finally:
        stack.close()               # stops what up() started, not what it attached to

The process that started a stack supervises it (`supervisor.py`). There is one stack per data
folder; two stacks need different `data` and `base_port`. `state.py` describes the file that records
a stack.

A detached stack outlives the terminal: `python -m deploy.local up` in its own session.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deploy.local.java import JavaMissingError, find_java
from deploy.local.parts import StackPart, lasting_parts, stack_parts
from deploy.local.processes import (
    end,
    end_processes,
    end_stack,
    end_unrecorded,
    identify,
    interrupt_start,
    is_alive,
    spawn,
    wait_until,
)
from deploy.local.startup import (
    READY_DEADLINE_S,
    Processes,
    Progress,
    Startup,
    check_config,
    check_host,
    check_jars,
    check_names,
    check_ports,
    check_room,
    log_path,
    process_environment,
    relaunch,
    settings_environment,
)
from deploy.local.state import (
    RESTARTING,
    RUNNING,
    STARTING,
    LockTimeoutError,
    ServiceState,
    StackError,
    StackState,
    StackStoppedError,
    StateFile,
    check_owner,
    crashed,
    make_private,
    tail,
    unwritable,
)
from deploy.local.supervisor import STOPPED_BY_ANOTHER, Announcer, Supervisor
from services.definitions.engines import load_engines
from services.runtime.settings import ServiceSettings

READY, NOT_READY, ENDED = "ready", "not ready", "ended"
DEADLINE_S = 300.0
STOP_TIMEOUT_S = 60.0
PREFIX = "tidegauge: "
__all__ = ["ServiceStatus", "Stack", "StackError", "StackStatus", "StackStoppedError"]
LOCK_TIMEOUT_S = 120.0
ATTACH_TIMEOUT_S = 45.0


@dataclass(frozen=True)
class ServiceStatus:
    """Status of one part. state: `ready`, `not ready`, `restarting` (it has ended and will be
    restarted) or `ended`. restarts: number of restarts."""

    name: str
    pid: int
    state: str
    restarts: int = 0


@dataclass(frozen=True)
class StackStatus:
    """Status of a stack. running: whether its start is complete and every part is alive or will be
    restarted. orphaned: whether parts are alive although the process that started them is gone."""

    running: bool
    kafka: str
    clickhouse_http: str
    dashboards: str
    services: tuple[ServiceStatus, ...]
    orphaned: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As JSON objects."""
        return asdict(self) | {"services": [asdict(service) for service in self.services]}


def describe(
    settings: ServiceSettings, stack_state: StackState | None, parts: Sequence[StackPart]
) -> StackStatus:
    """The status of a recorded stack; polls each part."""
    known = {part.name: part for part in parts}
    http = f"http://{settings.host}:{settings.port('store')}"
    services: tuple[ServiceStatus, ...] = ()
    running = orphaned = False
    if stack_state is not None:
        services = tuple(
            _service_status(settings, stack_state, s, known) for s in stack_state.services
        )
        running = stack_state.phase == RUNNING and all(s.state != ENDED for s in services)
        is_alone = not is_alive(stack_state.owner)
        orphaned = is_alone and any(s.state != ENDED for s in services)
    dashboards = f"{http}/dashboards/"
    return StackStatus(running, settings.open_bootstrap, http, dashboards, services, orphaned)


def _service_status(
    settings: ServiceSettings,
    stack_state: StackState,
    service: ServiceState,
    known: dict[str, StackPart],
) -> ServiceStatus:
    if is_alive(service.identity):
        ready = service.name in known and known[service.name].ready(settings)
        state = READY if ready else NOT_READY
    else:
        state = RESTARTING if is_alive(stack_state.owner) else ENDED
    return ServiceStatus(service.name, service.pid, state, service.restarts)


def start_detached(settings: ServiceSettings, on_progress: Progress) -> None:
    """Start the stack of `settings.data` (absolute); returns when it is ready.

    Relays `logs/stack.log`, which includes the last lines of the log of a part that failed. If
    interrupted, it stops what it started. Raises StackError with the sentence of the process that
    failed.
    """
    make_private(settings.data, on_progress)
    log = log_path(settings.data, "stack")
    command = (sys.executable, "-m", "deploy.local", "up", "--detached")
    process = spawn(command, log, settings.data, settings_environment(settings))
    lines = _Lines(log, on_progress)
    file = StateFile(settings.data)
    try:
        if not wait_until(lambda: _settled(process, file, lines), DEADLINE_S):
            raise StackError(f"the stack was not ready within {DEADLINE_S:g} s; see {log}")
    except BaseException:
        if process.poll() is None:
            end([identify(process.pid)], "", STOP_TIMEOUT_S)
        raise
    lines.relay()
    if process.poll():
        errors = [line for line in tail(log) if line.startswith(PREFIX)]
        text = errors[-1].removeprefix(PREFIX) if errors else f"the stack did not start; see {log}"
        raise StackError(text)
    on_progress("the stack is up")


def _settled(process: subprocess.Popen[bytes], file: StateFile, lines: "_Lines") -> bool:
    """Whether the start has succeeded or failed."""
    lines.relay()
    if process.poll() is not None:
        return True
    result = file.read()
    return result is not None and result.phase == RUNNING and result.owner.pid == process.pid


class _Lines:
    """Relays new lines of a log."""

    def __init__(self, log: Path, on_progress: Progress) -> None:
        self._file = log.open(errors="replace")
        self._progress = on_progress

    def relay(self) -> None:
        """Relay new lines, except the line that gives the reason of a failure."""
        for line in self._file:
            if line.strip() and not line.startswith(PREFIX):
                self._progress(line.rstrip())


def _quiet(_text: str) -> None:
    """Discard progress."""


class Stack:
    """The stack of one data folder.

    parts: by default all services and a broker. detached: whether this process has no terminal, so
    that `down` in another process ends it too.
    attached: whether up() found a running stack, which close() does not stop.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        parts: tuple[StackPart, ...] | None = None,
        detached: bool = False,
        ready_deadline_s: float = READY_DEADLINE_S,
    ) -> None:
        self.settings = settings.model_copy(update={"data": settings.data.absolute()})
        self.attached = False
        self._parts = stack_parts(self.settings) if parts is None else parts
        # Parts of a running stack: one that stays up has more than a single run needs.
        self._known = (*lasting_parts(self.settings), *self._parts)
        self._file = StateFile(self.settings.data)
        self._detached = detached
        self._ready_deadline_s = ready_deadline_s
        self._state: StackState | None = None
        self._processes: Processes = {}
        self._supervisor: Supervisor | None = None
        self._announcer = Announcer(self.settings)

    def up(
        self, on_progress: Progress = _quiet, once_leading: Callable[[], None] | None = None
    ) -> None:
        """Attach to the stack of this data folder if it runs, else start one.

        Stops leftovers of an earlier start. Returns when everything is ready; on failure or
        interruption everything it started is stopped. once_leading: called during a start as soon
        as the parts that lead a run are ready; the others become ready while the run begins. Raises
        DefinitionError for a mistake in an engine's definition, and StackError, also if a stack
        runs with jars that differ from the lock: the next run would load them.
        """
        check_jars(self.settings.jars)
        with self._locked(on_progress):
            result = self._read()
            if result is not None and self._attach(result, on_progress):
                return
            if result is not None:
                on_progress("stopping processes left by an earlier start")
                end_stack(self._file, result, self._known)
            elif end_unrecorded(self.settings.data):
                on_progress("stopped processes of a stack without a record")
            self._start(on_progress, once_leading)

    def up_detached(self, on_progress: Progress = _quiet) -> None:
        """Like up(), in a separate process that outlives this one. Raises StackError."""
        result = self._read()
        if result is None or not self._attach(result, on_progress):
            start_detached(self.settings, on_progress)

    def down(self, on_progress: Progress = _quiet) -> bool:
        """Stop the stack of this data folder, whoever started it, and any leftovers.

        Returns whether there was any. Raises StackError if a process does not end.
        """
        if not self.settings.data.exists():
            return end_unrecorded(self.settings.data)
        interrupt_start(self._read())
        with self._locked(on_progress):
            result = self._read()
            if result is not None:
                on_progress("stopping the stack")
                end_stack(self._file, result, self._known)
            was_running = result is not None or end_unrecorded(self.settings.data)
        self._forget()
        return was_running

    def close(self, on_progress: Progress = _quiet) -> None:
        """Stop the stack if up() of this object started it and no other process has stopped it."""
        self._announcer.close()
        mine = self._supervisor.state if self._supervisor else self._state
        if mine is None or self.attached:
            self._forget()
            return
        try:
            recorded = self._read()
            if recorded and recorded.stack_id == mine.stack_id:
                self.down(on_progress)
        finally:  # also without a record or a folder; nothing if they have ended
            end_processes(mine, self._known)
            self._forget()

    def status(self) -> StackStatus:
        """Current status. Polls every part, so it takes some seconds if one hangs. Raises
        StackError if the stack of this folder runs with other settings."""
        result = self._read()
        if result is not None and is_alive(result.owner):
            self._want_same(result)
        return describe(self.settings, result, self._known)

    def check(self) -> None:
        """Check that every part is alive; call a few times a second.

        The process that started the stack restarts dead parts within their budget. Raises
        StackError if a part cannot continue: which, how, and the last lines of its log. Raises
        StackStoppedError if another tidegauge stopped the stack.
        """
        if self._supervisor is not None:
            try:
                self._supervisor.tick()
            except StackStoppedError:
                if self._read() is None:  # the record was removed, perhaps without the processes
                    end_processes(self._supervisor.state, self._known)
                self._forget()
                raise
        elif self._state is not None:
            self._check_as_guest(self._state)

    def _check_as_guest(self, state: StackState) -> None:
        """Leave dead parts to the stack's owner, while there is one."""
        dead = [s for s in state.services if not is_alive(s.identity)]
        if not dead:
            return
        recorded = self._read()
        if not recorded or (recorded.stack_id, recorded.phase) != (state.stack_id, RUNNING):
            self._forget()
            raise StackStoppedError(STOPPED_BY_ANOTHER)
        self._state = recorded
        if not is_alive(recorded.owner):
            raise crashed(dead[0].name, None, log_path(self.settings.data, dead[0].name))

    def _start(self, on_progress: Progress, once_leading: Callable[[], None] | None) -> None:
        settings = self.settings
        check_config()
        load_engines()  # raises for a mistake in one
        check_names(settings)
        check_host(settings)
        check_room(settings.data)
        check_ports(settings, [port for part in self._parts for port in part.ports])
        try:
            java = find_java(settings.jars)
        except JavaMissingError as error:
            raise StackError(str(error)) from error
        state = StackState(
            stack_id=uuid.uuid4().hex,
            phase=STARTING,
            host=settings.host,
            base_port=settings.base_port,
            owner=identify(os.getpid()),
            kafka=settings.open_bootstrap,
            detached=self._detached,
        )
        self._keep(state)
        environment = process_environment(settings, java, state.stack_id)
        startup = Startup(
            settings,
            java,
            environment,
            record=self._record,
            on_progress=on_progress,
            ready_deadline_s=self._ready_deadline_s,
        )
        self._processes, self.attached = startup.processes, False
        try:
            startup.run(self._parts, once_leading)
            self._keep(replace(self._state or state, phase=RUNNING))
        except BaseException:
            end_stack(self._file, self._state or state, self._parts)
            self._forget()
            raise
        self._supervisor = Supervisor(
            settings,
            self._parts,
            self._state or state,
            self._file,
            processes=self._processes,
            launch=lambda part: relaunch(part, settings, java, environment),
            announcer=self._announcer,
            on_progress=on_progress,
            ready_deadline_s=self._ready_deadline_s,
        )

    def _record(self, service: ServiceState) -> None:
        assert self._state is not None
        self._keep(self._state.with_service(service))

    def _keep(self, state: StackState) -> None:
        self._state = state
        self._file.write(state)

    def _forget(self) -> None:
        for process in self._processes.values():
            process.poll()
        self._state, self._processes, self._supervisor = None, {}, None

    def _is_whole(self, stack_state: StackState) -> bool:
        """Whether every required part was started, and the owner of the stack is alive.

        Without an owner parts are not restarted, and a run may be in progress. A stack that stays
        up has more parts than a single run needs.
        """
        known = {service.name for service in stack_state.services}
        whole = stack_state.phase == RUNNING and known >= {part.name for part in self._parts}
        return whole and is_alive(stack_state.owner)

    def _goes_on(self, stack_state: StackState) -> bool:
        now = self._read()
        return now is not None and now.stack_id == stack_state.stack_id and self._is_whole(now)

    def _attach(self, stack_state: StackState, on_progress: Progress) -> bool:
        """Attach to a recorded stack if it is and stays complete.

        Raises StackError if it has other ports, another Kafka or too few parts, or does not respond
        although it is alive.
        """
        if stack_state.phase == RUNNING and is_alive(stack_state.owner):
            self._want_same(stack_state)
            self._want_parts(stack_state)
        if not self._is_whole(stack_state):
            return False
        waiting = list(self._parts)

        def settled() -> bool:
            while waiting and waiting[0].ready(self.settings):
                waiting.pop(0)
            return not waiting or not self._goes_on(stack_state)

        if not wait_until(settled, ATTACH_TIMEOUT_S):
            log = log_path(self.settings.data, waiting[0].name)
            raise StackError(f"the stack runs, but {waiting[0].name} does not answer; see {log}")
        if waiting:
            return False
        self._state, self._processes, self.attached = self._read() or stack_state, {}, True
        on_progress(f"attached to the stack at base port {stack_state.base_port}")
        return True

    def _want_same(self, stack_state: StackState) -> None:
        """Raise StackError if the running stack differs from these settings."""
        ours = self.settings
        if (stack_state.host, stack_state.base_port) != (ours.host, ours.base_port):
            what = f"at base port {stack_state.base_port}, not {ours.base_port}"
        elif stack_state.kafka not in ("", ours.open_bootstrap):
            what = f"with the Kafka {stack_state.kafka}, not {ours.open_bootstrap}"
        else:
            return
        raise StackError(
            f"the stack of {ours.data} runs {what}; choose the same settings or another data"
            " folder, or stop it: ./tidegauge down",
        )

    def _want_parts(self, stack_state: StackState) -> None:
        """Raise StackError if the running stack lacks a required part: it belongs to a run, which
        must not be stopped."""
        lacks = {part.name for part in self._parts} - {
            service.name for service in stack_state.services
        }
        if lacks:
            raise StackError(
                f"the stack of {self.settings.data} (pid {stack_state.owner.pid}) runs without"
                f" {', '.join(sorted(lacks))}; wait until it ends, or stop it: ./tidegauge down",
            )

    def _read(self) -> StackState | None:
        """The recorded state. Raises StackError if the folder belongs to another user, who could
        list any of our processes in it."""
        try:
            check_owner(self.settings.data)
            return self._file.read()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            path = self.settings.data / "stack.json"
            raise StackError(f"{path} cannot be parsed ({error}); remove it") from error
        except OSError as error:
            raise unwritable(error, self.settings.data) from error

    @contextmanager
    def _locked(self, on_progress: Progress) -> Iterator[None]:
        waiting = "waiting for another tidegauge that starts or stops the stack"
        try:
            make_private(self.settings.data, on_progress)
            with self._file.locked(LOCK_TIMEOUT_S, lambda: on_progress(waiting)):
                yield
        except LockTimeoutError as error:
            raise StackError(str(error)) from error
        except OSError as error:
            raise unwritable(error, self.settings.data) from error
