"""Pipeline processes: start, read output, stop, reap.

`Lines` makes lines of the contract of the standard output of an engine program, all bounded.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.engine import LINE, Line, UndecodableLine
from schemas.pipeline import Pipeline
from schemas.validation_errors import first_mistake
from services.definitions.engines import Installed
from services.runner.core_limits import CoreLimit, core_limit
from services.runtime.before_install import without_jvm_options
from services.runtime.events import DeadLetter
from services.runtime.settings import ROOT

MAX_LINE_BYTES = 256 * 1024
# Limit of lines outside the contract that go to the log.
MAX_LOGGED_LINES = 1_000
MAX_LOGGED_CHARACTERS = 2_000
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.05
TAIL_BYTES = 65_536
# Bytes and reads of standard output per poll. The rest waits for the next poll.
READ_BYTES, MAX_READS = 65_536, 4
REASON_CHARACTERS = 600
PYTHON, JAVA = "python", "java"
SERIAL, G1 = "-XX:+UseSerialGC", "-XX:+UseG1GC"
COLLECTOR = "TIDEGAUGE_COLLECTOR"  # the option, for a program that starts a JVM itself
# Log lines that do not give a cause: stack frames, shutdown notices, and librdkafka's own lines
# (`%3|1764244800.123|FAIL|...`).
NOT_MEANINGFUL = re.compile(r"at |File |\.\.\.|Traceback \(|\^|~|%\d\|")
# Environment variables passed to programs: paths, locale, Java, Python, the machine's certificates
# and proxies, and the mark by which a stack finds its processes.
KEPT = re.compile(
    r"HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|LANG|LANGUAGE|LC_\w+|JAVA_HOME|LD_LIBRARY_PATH|PYTHON\w*"
    r"|SSL_CERT_(FILE|DIR)|(?i:(https?|no|all)_proxy)|TIDEGAUGE_STACK_ID"
)


@dataclass
class Lines:
    """Lines of one program. Lines outside the contract go to its log: the first MAX_LOGGED_LINES,
    each truncated."""

    _rest: bytearray = field(default_factory=bytearray)
    _skips: bool = False
    _logged: int = 0

    def feed(self, data: bytes) -> tuple[list[Line], list[str]]:
        """The contract lines completed by `data`, and the text to log."""
        result: list[Line] = []
        logged: list[str] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._take(part)
            line = None if self._skips else _parsed(bytes(self._rest))
            if line is not None and not isinstance(line, str):
                result.append(line)
            elif line != "":
                logged += self._to_log(
                    f"a line of more than {MAX_LINE_BYTES} bytes is left out"
                    if line is None
                    else line
                )
            self._rest.clear()
            self._skips = False
        self._take(rest)
        return result, logged

    def _take(self, part: bytes) -> None:
        if len(self._rest) + len(part) > MAX_LINE_BYTES:
            self._skips = True
            self._rest.clear()
        elif not self._skips:
            self._rest += part

    def _to_log(self, text: str) -> list[str]:
        self._logged += 1
        if self._logged == MAX_LOGGED_LINES + 1:
            return ["further lines of standard output are left out"]
        return [text[:MAX_LOGGED_CHARACTERS]] if self._logged <= MAX_LOGGED_LINES else []


def _parsed(raw: bytes) -> Line | str:
    """The parsed line; or the text to log, with the reason if it resembled a contract line."""
    text = raw.decode(errors="replace").strip()
    if not text.startswith("{"):
        return text
    try:
        return LINE.validate_json(raw)
    except ValidationError as error:
        return f"not a line of the contract ({first_mistake(error)}): {text}"
    except (ValueError, RecursionError) as error:
        return f"not a line of the contract ({error}): {text}"


def dead_letter(line: UndecodableLine, pipeline: str) -> DeadLetter:
    """A record that a program could not decode, with the reason as a sentence."""
    size = len(line.value or b"")
    cut = f"; its value of {line.bytes} bytes was truncated to {size}" if line.bytes > size else ""
    reason = f"{pipeline}: the value cannot be decoded{cut}"
    return DeadLetter(line.topic, line.value, reason, line.partition, line.offset)


@dataclass
class PipelineProcess:
    """The program of one pipeline, in its own process group."""

    pipeline: str
    process: "subprocess.Popen[bytes]"
    log: Path
    limit: CoreLimit = field(default_factory=CoreLimit)
    _lines: Lines = field(default_factory=Lines)

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()

    def said(self) -> list[Line]:
        """Contract lines written since the last call; other lines go to the log."""
        result: list[Line] = []
        for _ in range(MAX_READS):
            data = self._read()
            lines, logged = self._lines.feed(data)
            result += lines
            if logged:
                with self.log.open("a") as file:
                    file.writelines(f"{text}\n" for text in logged)
            if len(data) < READ_BYTES:
                break
        return result

    def keep_log(self) -> None:
        """Rename the log to `NAME.failed.log`, because the next start would truncate it. A program
        that still runs continues to write to it."""
        kept = self.log.with_suffix(".failed.log")
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(kept)
        self.log = kept

    def _read(self) -> bytes:
        if self.process.stdout is None:
            return b""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.process.stdout.fileno(), READ_BYTES)
        return b""


def start_process(pipeline: Pipeline, place: Installed, plan: Path, log: Path) -> PipelineProcess:
    """Start the program of a pipeline, which logs to `log`. Raises OSError, also if its engine is
    not installed or cannot be limited to `cores`.

    The log is truncated at each start, which bounds it. The program's standard input is a pipe from
    this process, so the program ends when this process does, whatever the cause.
    """
    engine = place.engine
    if place.lacking():
        raise OSError(
            f"the engine {engine.spec.name} is not installed; run: "
            f"./tidegauge engines {engine.spec.name} --install"
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    limit = core_limit(pipeline.cores)
    program, *options = command_of(place, pipeline.settings)
    if program == JAVA:
        options = [*_files_of_jvm(plan, log), *options]
    with log.open("ab") as errors, limit.inherited():
        process = subprocess.Popen(
            limit.command([program, *options, str(plan)]),
            cwd=ROOT if engine.spec.module else engine.folder,
            env=environment(place, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return PipelineProcess(pipeline.name, process, log, limit)


def with_concurrent_collector(place: Installed) -> Installed:
    """The engine with G1, the JVM's default on a server, in place of the serial collector: in its
    command, and as the variable COLLECTOR."""
    command = tuple(G1 if each == SERIAL else each for each in place.engine.spec.command)
    spec = place.engine.spec.model_copy(update={"command": command})
    engine = replace(place.engine, spec=spec)
    return replace(place, engine=engine, variables={COLLECTOR: G1})


def command_of(place: Installed, settings: Mapping[str, Any]) -> list[str]:
    """The command of an engine's program: a module of this Python, or an executable, looked up in
    the engine's folder first. `python` is never looked up on PATH if the engine has its own."""
    engine = place.engine
    if engine.spec.module:
        return [sys.executable, "-m", engine.spec.module]
    program, *options = engine.spec.command_for(dict(settings))
    if program == PYTHON and place.python_lock:
        return [str(place.venv / "bin" / PYTHON), *options]
    own = engine.folder / program
    return [str(own) if own.is_file() else program, *options]


def _files_of_jvm(plan: Path, log: Path) -> list[str]:
    """Options of a JVM whose temporary files, such as unpacked native libraries, are removed with
    the plan's folder, also if it is killed, and whose crash report is beside its log. Removes
    earlier reports, which bounds them: a JVM replaces none."""
    temporary = plan.with_suffix(".tmp")
    temporary.mkdir(mode=0o700, exist_ok=True)
    for report in log.parent.glob(f"{log.stem}.crash.*.log"):
        report.unlink(missing_ok=True)
    return [
        f"-Djava.io.tmpdir={temporary}",
        f"-XX:ErrorFile={log.with_suffix('.crash.%p.log')}",
    ]


def environment(place: Installed, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: the KEPT variables and those of its engine's installation,
    never options for all JVMs, which could clash with its own. `python` is the engine's
    interpreter, or this one."""
    more = [re.compile(pattern) for pattern in place.engine.spec.environment]
    kept = {
        name: value
        for name, value in without_jvm_options(ours).items()
        if KEPT.fullmatch(name) or any(pattern.fullmatch(name) for pattern in more)
    }
    own = place.environment()
    python = own.get("PATH", str(Path(sys.executable).parent))
    path = os.pathsep.join([python, ours.get("PATH", os.defpath)])
    return kept | own | {"PATH": path}


def stop_processes(processes: Iterable[PipelineProcess], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ask all programs to stop, wait up to `timeout_s` for all of them, and kill the rest."""
    stopping = list(processes)
    for each in stopping:
        each.process.terminate()
    deadline_s = time.monotonic() + timeout_s
    while still := [each for each in stopping if each.code is None]:
        for each in still:
            each.said()  # a full pipe would block the program
        if time.monotonic() > deadline_s:
            break
        time.sleep(POLL_INTERVAL_S)
    for each in stopping:
        reap(each)


def reap(ended: PipelineProcess) -> None:
    """Kill the remaining processes of a program's process group."""
    with contextlib.suppress(ProcessLookupError):  # none remain
        os.killpg(ended.process.pid, signal.SIGKILL)
    ended.process.wait()
    for pipe in (ended.process.stdin, ended.process.stdout):
        if pipe is not None:
            pipe.close()
    ended.limit.remove()


def read_tail(log: Path) -> str:
    """The last 64 KiB of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")


def last_meaningful_line(text: str) -> str:
    """The last log line that is neither blank nor part of a stack trace."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    result = next((line for line in lines if line and not NOT_MEANINGFUL.match(line)), "")
    return result[:REASON_CHARACTERS] or "its log has no message"
