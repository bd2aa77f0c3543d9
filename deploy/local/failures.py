"""Failures of a stack: one sentence, and the last lines of the relevant log."""

import signal
from pathlib import Path

TAIL_BYTES = 64 * 1024


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
