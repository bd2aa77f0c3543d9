"""Starts the parts of a stack in dependency order, each as early as possible.

There are no fixed delays: a part starts when its dependencies report ready. A part that leads a run
is started at once, initialises as far as it can, and waits on its standard input for the line that
its dependencies are ready.

Before a start, settings, jars, disk space, folder names and free ports are checked.
"""

import difflib
import errno
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

from deploy.local.broker import BrokerError, known_to
from deploy.local.jars import JarsError, jars_lock, mend, verify_jars
from deploy.local.java import Java
from deploy.local.parts import StackPart
from deploy.local.processes import MARK, identify, is_alive, mark_of, marks_of, spawn, wait_until
from deploy.local.state import (
    READY,
    STARTING,
    Identity,
    ServiceState,
    StackError,
    StateFile,
    crashed,
    not_ready,
    tail,
)
from services.runtime.files import read_toml
from services.runtime.kafka import KafkaUnavailableError, said_by_kafka
from services.runtime.ports import ephemeral_hint
from services.runtime.probe import ANY_ADDRESS
from services.runtime.secret_files import SecretFileError
from services.runtime.serving import GO, WAITS
from services.runtime.settings import ROOT, ServiceSettings

NEEDED_FREE_BYTES = 500 * 1024**2
RELEASE_S = 5.0
# Path separator, quote of JVM options, and placeholders in Faust's settings.
TAKEN_APART = frozenset(',"{}')
READY_DEADLINE_S = 180.0  # of a process that lives; the store may take a minute on a busy machine
POLL_S = 0.1
Progress = Callable[[str], None]
Processes = dict[str, subprocess.Popen[bytes]]


def check_jars(jars: Path) -> None:
    """Raise StackError, with a remedy, if the jars differ from the lock."""
    try:
        verify_jars(jars, jars_lock())
    except (JarsError, OSError) as error:
        raise StackError(f"{error}; {mend(jars)}") from error


def known_settings() -> set[str]:
    """Names of all settings, in lower case. The first call imports the modules that define them,
    which takes 30 ms."""
    files = (ROOT / "services").glob("*/settings.py")
    names = [f"services.{file.parent.name}.settings" for file in files]
    names += ["deploy.local.broker", "deploy.local.supervisor"]
    defined = (value for name in names for value in vars(import_module(name)).values())
    return {
        field
        for kind in defined
        if isinstance(kind, type) and issubclass(kind, ServiceSettings)
        for field in kind.model_fields
    }


def check_config() -> None:
    """Raise StackError if the file of TIDEGAUGE_CONFIG has a key that no service reads."""
    path = os.environ.get("TIDEGAUGE_CONFIG")
    if not path:
        return
    known = sorted(known_settings())
    for key in read_toml(Path(path)):
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ", see docs/settings.md"
            raise StackError(f"TIDEGAUGE_CONFIG: there is no setting {key[:80]!r}{hint}")


def check_room(data: Path, needed_bytes: int = NEEDED_FREE_BYTES) -> None:
    """Raise StackError if the disk of the data folder is nearly full."""
    free = shutil.disk_usage(data).free
    if free < needed_bytes:
        raise StackError(
            f"the disk is full: {free // 1024**2} MB are free in {data},"
            f" and {needed_bytes // 1024**2} MB are needed"
        )


def check_names(settings: ServiceSettings) -> None:
    """Raise StackError if a folder name contains characters that Java or an engine would split
    at."""
    for what, path, taken_apart in (
        ("data folder", settings.data, TAKEN_APART),
        ("folder of the jars", settings.jars, TAKEN_APART | {":"}),
    ):
        bad = sorted(set(str(path.absolute())) & taken_apart)
        if bad or not str(path.absolute()).isprintable():
            which = " ".join(bad) or "control characters"
            raise StackError(
                f"the {what} {str(path.absolute())!r} has {which} in its name,"
                " which Java or an engine takes for something else; choose another folder",
            )


def check_host(settings: ServiceSettings) -> None:
    """Raise StackError if the broker could not advertise its address to clients."""
    if settings.host in ANY_ADDRESS and not settings.kafka_bootstrap:
        raise StackError(
            f"TIDEGAUGE_HOST is {settings.host!r}, which stands for all addresses of this machine;"
            " set it to one of them, which clients can connect to"
        )
    if objection := ipv6_objection(settings):
        raise StackError(objection)


def ipv6_objection(settings: ServiceSettings) -> str:
    """Why the host cannot be an IPv6 address, which the broker and its metrics agent would take for
    a host and a port; empty if it is none."""
    if ":" not in settings.host or settings.host in ANY_ADDRESS:
        return ""
    return (
        f"TIDEGAUGE_HOST is {settings.host!r}, and the stack does not listen on IPv6 addresses;"
        " set it to an IPv4 address of this machine, such as 127.0.0.1"
    )


def check_ports(settings: ServiceSettings, names: Iterable[str]) -> None:
    """Raise StackError, which names port and process, if a port is in use.

    names: of ports in the shared settings.
    """
    for name in names:
        port = settings.port(name)
        if _is_taken(settings.host, port) and not _is_released(settings.host, port):
            holder = _holder(port)
            raise StackError(
                f"port {port}, which {name} needs, is taken{_named(holder)};"
                f" {_remedy(settings, holder)}"
            )


def _remedy(settings: ServiceSettings, holder: psutil.Process | None) -> str:
    if holder and mark_of(holder) in marks_of(settings.data):
        recorded = StateFile(settings.data).read()
        if recorded and is_alive(recorded.owner):
            return "it belongs to the stack of this data folder, which is starting or stopping"
        return "the command that started it is gone; end it with ./tidegauge down"
    hint = ephemeral_hint(settings.base_port)
    other = f"set TIDEGAUGE_BASE_PORT to another than {settings.base_port}"
    return f"{other} ({hint})" if hint else other


def _is_taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do, so that closing connections of a stopped stack do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise StackError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return False


def _is_released(host: str, port: int) -> bool:
    """Whether a port without a visible owner becomes free soon: the system closes the sockets of a
    killed process shortly after the process has gone."""
    return not _holder(port) and wait_until(lambda: not _is_taken(host, port), RELEASE_S)


def _holder(port: int) -> psutil.Process | None:
    """The process that listens on a port; None if unknown."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr.port == port and connection.pid:
                return psutil.Process(connection.pid)
    return None


def _named(holder: psutil.Process | None) -> str:
    """` by NAME (pid N)`, or empty if unknown."""
    with suppress(psutil.Error):
        return f" by {holder.name()} (pid {holder.pid})" if holder else ""
    return ""


def log_path(data: Path, name: str) -> Path:
    """Path of a part's log."""
    return data / "logs" / f"{name}.log"


def settings_environment(
    settings: ServiceSettings, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of our own processes: all settings, and the module path."""
    merged = {name: value for name, value in environ.items() if name != "TIDEGAUGE_INSTANCE"}
    for name, value in settings.model_dump(mode="json").items():
        if name in ServiceSettings.model_fields and name != "instance":
            text = value if isinstance(value, str) else json.dumps(value)
            merged[f"TIDEGAUGE_{name.upper()}"] = text
    if merged.get("TIDEGAUGE_CONFIG"):
        merged["TIDEGAUGE_CONFIG"] = str(Path(merged["TIDEGAUGE_CONFIG"]).absolute())
    paths = [str(ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return merged | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(paths)}


def process_environment(settings: ServiceSettings, java: Java, stack_id: str) -> dict[str, str]:
    """Common environment of all parts: settings, Java, and the mark that identifies the stack."""
    return java.environment(settings_environment(settings)) | {MARK: stack_id}


def launch(
    part: StackPart,
    settings: ServiceSettings,
    java: Java,
    environment: Mapping[str, str],
    waits: bool = False,
) -> tuple[subprocess.Popen[bytes], Identity]:
    """Start one part. waits: make it wait for a line on its standard input. Raises StackError if it
    cannot be started or exits at once."""
    log = log_path(settings.data, part.name)
    try:
        part.prepare(settings, java)
        command = part.command(settings, java)
        variables = known_to(part.name, environment) | ({WAITS: "1"} if waits else {})
        process = spawn(command, log, settings.data, variables, part.niceness, is_told=waits)
    except (OSError, subprocess.TimeoutExpired, BrokerError, SecretFileError) as error:
        raise StackError(f"{part.name} cannot start: {error}") from error
    try:
        return process, identify(process.pid)
    except psutil.NoSuchProcess as error:
        raise crashed(part.name, process.poll(), log) from error


def relaunch(
    part: StackPart, settings: ServiceSettings, java: Java, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Identity]:
    """Restart a part after checking the jars: it may have died of a truncated one. Raises
    StackError."""
    check_jars(settings.jars)
    return launch(part, settings, java, environment)


class Startup:
    """One start of a stack.

    environment: of every process. record: called with every started part and again when it is
    ready. `processes` contains everything started so far, also after a failure.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        java: Java,
        environment: Mapping[str, str],
        *,
        record: Callable[[ServiceState], None],
        on_progress: Progress,
        ready_deadline_s: float = READY_DEADLINE_S,
    ) -> None:
        self.processes: Processes = {}
        self._settings = settings
        self._java = java
        self._environment = environment
        self._record = record
        self._progress = on_progress
        self._deadline_s = ready_deadline_s
        self._started: dict[str, ServiceState] = {}
        self._started_at: dict[str, float] = {}
        self._ready: set[str] = set()
        self._waiting: set[str] = set()

    def run(
        self, parts: Sequence[StackPart], once_leading: Callable[[], None] | None = None
    ) -> None:
        """Start all parts; returns when each is ready. once_leading: called as soon as those that
        lead a run are. Raises StackError."""
        leading = {part.name for part in parts if part.leads}
        while len(self._ready) < len(parts):
            for part in parts:
                self._start_or_tell(part, is_due=self._ready.issuperset(part.after))
            for part in parts:
                if part.name in self.processes:
                    self._look_after(part)
            if once_leading is not None and self._ready.issuperset(leading):
                once_leading()
                once_leading = None
            if len(self._ready) < len(parts):
                time.sleep(POLL_S)

    def _start_or_tell(self, part: StackPart, is_due: bool) -> None:
        if part.name not in self.processes:
            if is_due or part.leads:
                self._start(part, waits=not is_due)
        elif is_due and part.name in self._waiting:
            self._waiting.remove(part.name)
            stdin = self.processes[part.name].stdin
            assert stdin is not None
            with suppress(BrokenPipeError), stdin:  # an exited part is noticed elsewhere
                stdin.write(GO)

    def _start(self, part: StackPart, waits: bool) -> None:
        self._progress(f"starting {part.name}")
        self._started_at[part.name] = time.monotonic()
        process, identity = launch(part, self._settings, self._java, self._environment, waits)
        if waits:
            self._waiting.add(part.name)
        self.processes[part.name] = process
        started = ServiceState(part.name, identity.pid, identity.birth, STARTING)
        self._started[part.name] = started
        self._record(started)

    def _look_after(self, part: StackPart) -> None:
        log = log_path(self._settings.data, part.name)
        code = self.processes[part.name].poll()
        if code is not None:
            raise crashed(part.name, code, log)
        if part.name in self._ready:
            return
        took_s = time.monotonic() - self._started_at[part.name]
        if part.ready(self._settings):
            self._once_ready(part)
            self._progress(f"{part.name} is ready after {took_s:.1f} s")
        elif took_s > self._deadline_s:
            raise not_ready(part.name, self._deadline_s, log)

    def _once_ready(self, part: StackPart) -> None:
        try:
            part.once_ready(self._settings)
        except (KafkaException, KafkaUnavailableError) as error:
            log = log_path(self._settings.data, part.name)
            why = said_by_kafka(error)
            text = f"{part.name} failed a startup check: {why}; its log is {log}"
            raise StackError(text, tail(log)) from error
        self._record(replace(self._started[part.name], state=READY))
        self._ready.add(part.name)
