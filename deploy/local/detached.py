"""Starts a stack that outlives the terminal: `python -m deploy.local up` in its own session."""

import subprocess
import sys
from pathlib import Path

from deploy.local.data_folder import make_private
from deploy.local.failures import StackError, tail
from deploy.local.processes import end, identify, spawn, wait_until
from deploy.local.startup import Progress, log_path, settings_environment
from deploy.local.state import RUNNING, StateFile
from services.runtime.settings import ServiceSettings

DEADLINE_S = 300.0
STOP_TIMEOUT_S = 60.0
PREFIX = "tidegauge: "


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
        said = [line for line in tail(log) if line.startswith(PREFIX)]
        text = said[-1].removeprefix(PREFIX) if said else f"the stack did not start; see {log}"
        raise StackError(text)
    on_progress("the stack is up")


def _settled(process: subprocess.Popen[bytes], file: StateFile, lines: "_Lines") -> bool:
    """Whether the start has succeeded or failed."""
    lines.relay()
    if process.poll() is not None:
        return True
    found = file.read()
    return found is not None and found.phase == RUNNING and found.owner.pid == process.pid


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
