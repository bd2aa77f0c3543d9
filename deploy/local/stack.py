"""Everything on one machine: a Kafka broker and the services, started and stopped together.

    stack = Stack(settings)
    try:
        stack.up(print)
        while ...:
            stack.check()           # now and then: starts parts again that have died
    finally:
        stack.close()               # stops what up() started; leaves alone what it attached to

The process that started a stack supervises it (`supervisor.py`). One stack per data folder; two
stacks differ in `data` and `base_port`. `state.py` describes the file by which others find a stack.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from deploy.local.announcing import Announcer
from deploy.local.data_folder import check_owner, make_private
from deploy.local.detached import start_detached
from deploy.local.ending import end_stack, interrupt_start
from deploy.local.failures import EXIT_USAGE, StackError, StackStoppedError, crashed, unwritable
from deploy.local.java import JavaMissingError, find_java
from deploy.local.parts import Part, lasting_parts, stack_parts
from deploy.local.preflight import check_jars, check_names, check_ports, check_room
from deploy.local.processes import identify, is_alive, wait_until
from deploy.local.startup import (
    READY_DEADLINE_S,
    Processes,
    Progress,
    Startup,
    log_path,
    process_environment,
    relaunch,
)
from deploy.local.state import (
    RUNNING,
    STARTING,
    LockTimeoutError,
    ServiceState,
    StackState,
    StateFile,
)
from deploy.local.status import ServiceStatus, StackStatus, describe
from deploy.local.supervisor import STOPPED_BY_ANOTHER, Supervisor
from services.runtime.settings import ServiceSettings

__all__ = ["ServiceStatus", "Stack", "StackError", "StackStatus", "StackStoppedError"]

LOCK_TIMEOUT_S = 120.0
ATTACH_TIMEOUT_S = 45.0


def _quiet(_text: str) -> None:
    """Progress nobody asked for."""


class Stack:
    """The stack of one data folder.

    parts: what it consists of; all services and a broker unless told otherwise. detached: whether
    this process is nobody's terminal, so that `down` elsewhere ends it too.
    attached: whether up() found a running stack, which close() then leaves alone.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        parts: tuple[Part, ...] | None = None,
        detached: bool = False,
        ready_deadline_s: float = READY_DEADLINE_S,
    ) -> None:
        self.settings = settings.model_copy(update={"data": settings.data.absolute()})
        self.attached = False
        self._parts = stack_parts(self.settings) if parts is None else parts
        # What may be found running: one that is left on has parts that a single run does without.
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

        Ends what an earlier start left behind. Returns when everything is ready; when it fails or
        is interrupted, everything it started is ended. once_leading: called in a start as soon as
        the parts are ready that lead a run; the others get ready while it begins. Raises
        StackError, also when a stack runs whose jars are no longer right: the next run would load
        them.
        """
        check_jars(self.settings.jars)
        with self._locked(on_progress):
            found = self._read()
            if found is not None and self._attach(found, on_progress):
                return
            if found is not None:
                on_progress("ending what an earlier start left behind")
                end_stack(self._file, found, self._known)
            self._start(on_progress, once_leading)

    def up_detached(self, on_progress: Progress = _quiet) -> None:
        """Like up(), in a process of its own that goes on when this one ends. Raises StackError."""
        found = self._read()
        if found is None or not self._attach(found, on_progress):
            start_detached(self.settings, on_progress)

    def down(self, on_progress: Progress = _quiet) -> bool:
        """Stop the stack of this data folder, whoever started it, and whatever is left of one.

        Returns whether there was any. Raises StackError when a process does not end.
        """
        interrupt_start(self._read())
        with self._locked(on_progress):
            found = self._read()
            if found is not None:
                on_progress("stopping the stack")
                end_stack(self._file, found, self._known)
        self._forget()
        return found is not None

    def close(self, on_progress: Progress = _quiet) -> None:
        """Stop the stack if up() of this object started it and nobody else has stopped it."""
        self._announcer.close()
        mine, recorded = self._state, self._read()
        if mine and recorded and not self.attached and recorded.stack_id == mine.stack_id:
            self.down(on_progress)
        self._forget()

    def status(self) -> StackStatus:
        """What runs now. Asks every part, so it takes some seconds when one hangs."""
        return describe(self.settings, self._read(), self._known)

    def check(self) -> None:
        """See that every part lives; call it a few times a second.

        The process that started the stack starts a part again that has died, as often as its
        budget allows. Raises StackError when a part cannot go on: which, how, and the last lines
        of its log. Raises StackStoppedError when another tidegauge stopped the stack.
        """
        if self._supervisor is not None:
            try:
                self._supervisor.tick()
            except StackStoppedError:
                self._forget()
                raise
        elif self._state is not None:
            self._check_as_guest(self._state)

    def _check_as_guest(self, state: StackState) -> None:
        """A part that has died is its owner's to start again, while there is one."""
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
        check_names(settings)
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

    def _is_whole(self, found: StackState) -> bool:
        """Whether every part that is wanted was started, and the stack has an owner that lives.

        Without one nobody starts parts again, and a run may still be going on. A stack that is left
        on has parts that a single run does without.
        """
        known = {service.name for service in found.services}
        whole = found.phase == RUNNING and known >= {part.name for part in self._parts}
        return whole and is_alive(found.owner)

    def _goes_on(self, found: StackState) -> bool:
        now = self._read()
        return now is not None and now.stack_id == found.stack_id and self._is_whole(now)

    def _attach(self, found: StackState, on_progress: Progress) -> bool:
        """Make a recorded stack this object's, if it is whole and remains so.

        Raises StackError when it has other ports or another Kafka, or lives and does not answer.
        """
        if found.phase == RUNNING and is_alive(found.owner):
            self._want_same(found)
        if not self._is_whole(found):
            return False
        waiting = list(self._parts)

        def settled() -> bool:
            while waiting and waiting[0].ready(self.settings):
                waiting.pop(0)
            return not waiting or not self._goes_on(found)

        if not wait_until(settled, ATTACH_TIMEOUT_S):
            log = log_path(self.settings.data, waiting[0].name)
            raise StackError(f"the stack runs, but {waiting[0].name} does not answer; see {log}")
        if waiting:
            return False
        self._state, self._processes, self.attached = self._read() or found, {}, True
        on_progress(f"attached to the stack that runs at base port {found.base_port}")
        return True

    def _want_same(self, found: StackState) -> None:
        """Raise StackError when what runs is not what these settings mean."""
        ours = self.settings
        if (found.host, found.base_port) != (ours.host, ours.base_port):
            what = f"at base port {found.base_port}, not {ours.base_port}"
        elif found.kafka not in ("", ours.open_bootstrap):
            what = f"with the Kafka {found.kafka}, not {ours.open_bootstrap}"
        else:
            return
        raise StackError(
            f"the stack of {ours.data} runs {what}; stop it or choose another data folder",
            exit_code=EXIT_USAGE,
        )

    def _read(self) -> StackState | None:
        """What is recorded. Raises StackError when the folder is another user's, who could name
        any process of ours in it."""
        try:
            check_owner(self.settings.data)
            return self._file.read()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            path = self.settings.data / "stack.json"
            raise StackError(f"{path} does not say what runs ({error}); remove it") from error
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
