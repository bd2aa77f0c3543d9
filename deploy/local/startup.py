"""Starts the parts of a stack in dependency order, each as early as possible.

There are no fixed delays: a part starts when its dependencies report ready. A part that leads a run
is started at once, initialises as far as it can, and waits on its standard input for the line that
its dependencies are ready.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

from deploy.local.broker import BrokerError
from deploy.local.failures import StackError, crashed, not_ready, tail
from deploy.local.java import Java
from deploy.local.parts import Part
from deploy.local.preflight import check_jars
from deploy.local.processes import MARK, identify, spawn
from deploy.local.state import READY, STARTING, Identity, ServiceState
from deploy.local.variables import known_to
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.secret_files import SecretFileError
from services.runtime.serving import GO, WAITS
from services.runtime.settings import ROOT, ServiceSettings

READY_DEADLINE_S = 60.0
POLL_S = 0.1

Progress = Callable[[str], None]
Processes = dict[str, subprocess.Popen[bytes]]


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
    part: Part,
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
    part: Part, settings: ServiceSettings, java: Java, environment: Mapping[str, str]
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

    def run(self, parts: Sequence[Part], once_leading: Callable[[], None] | None = None) -> None:
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

    def _start_or_tell(self, part: Part, is_due: bool) -> None:
        if part.name not in self.processes:
            if is_due or part.leads:
                self._start(part, waits=not is_due)
        elif is_due and part.name in self._waiting:
            self._waiting.remove(part.name)
            stdin = self.processes[part.name].stdin
            assert stdin is not None
            with suppress(BrokenPipeError), stdin:  # an exited part is noticed elsewhere
                stdin.write(GO)

    def _start(self, part: Part, waits: bool) -> None:
        self._progress(f"starting {part.name}")
        self._started_at[part.name] = time.monotonic()
        process, identity = launch(part, self._settings, self._java, self._environment, waits)
        if waits:
            self._waiting.add(part.name)
        self.processes[part.name] = process
        started = ServiceState(part.name, identity.pid, identity.birth, STARTING)
        self._started[part.name] = started
        self._record(started)

    def _look_after(self, part: Part) -> None:
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

    def _once_ready(self, part: Part) -> None:
        try:
            part.once_ready(self._settings)
        except (KafkaException, KafkaUnavailableError) as error:
            log = log_path(self._settings.data, part.name)
            text = f"{part.name} failed a startup check: {error}; its log is {log}"
            raise StackError(text, tail(log)) from error
        self._record(replace(self._started[part.name], state=READY))
        self._ready.add(part.name)
