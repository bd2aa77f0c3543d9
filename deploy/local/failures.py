"""How a stack fails: one sentence, and the last lines of the log that tells more."""

import signal
from pathlib import Path

TAIL_BYTES = 64 * 1024
EXIT_FAILED = 1
EXIT_USAGE = 2


class StackError(Exception):
    """The stack cannot start or go on; the text is one sentence.

    log_tail: last lines of the log of the part concerned, oldest first. exit_code: what the
    command line should end with, 2 when other settings would help.
    """

    def __init__(
        self, text: str, log_tail: tuple[str, ...] = (), exit_code: int = EXIT_FAILED
    ) -> None:
        super().__init__(text)
        self.log_tail = log_tail
        self.exit_code = exit_code


class StackStoppedError(StackError):
    """Another tidegauge stopped the stack; nothing crashed."""


def crashed(name: str, code: int | None, log: Path) -> StackError:
    """A part has ended by itself. code: of subprocess, negative for a signal; None is unknown."""
    return StackError(f"{name} {ending(code)}; its log is {log}", tail(log))


def not_ready(name: str, timeout_s: float, log: Path) -> StackError:
    """A part runs and does not become ready."""
    return StackError(f"{name} was not ready within {timeout_s:g} s; its log is {log}", tail(log))


def worn_out(name: str, how: str, restarts: int, log: Path) -> StackError:
    """A part has ended too often. how: what became of it the last time."""
    tries = f" after {restarts} restart{'' if restarts == 1 else 's'}" if restarts else ""
    return StackError(f"{name} {how}{tries}; its log is {log}", tail(log))


def unwritable(error: OSError, folder: Path) -> StackError:
    """The folder of the state cannot be used: it is full, or somebody else's."""
    return StackError(f"{error.filename or folder} cannot be used: {error.strerror or error}")


def ending(code: int | None) -> str:
    """How a process ended, as the end of a sentence that begins with its name."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def tail(log: Path, lines: int = 12) -> tuple[str, ...]:
    """The last lines of a log that are not empty; none when there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple([line.rstrip() for line in text.splitlines() if line.strip()][-lines:])
