"""Runs with a planted slowdown, and recordings of their events.

    python -m tests.faults.planted FOLDER 3      # three runs of each kind, written as recordings

A recording contains the request and phases of a run and the events that the conductor reads, so
that a test can replay it: `tests/unit/conductor/data/planted`.
"""

import json
import lzma
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from schemas import protocol
from services.conductor.run_state import BUS
from services.runtime.settings import ServiceSettings
from tests.faults.breakable_stack import (
    BreakableStack,
    Report,
    breakable_stack,
    eventually,
)
from tests.integration.service_process import Reader

MEASURE_S = 24
RATE = 400
SEND_DELAY_ALLOWED_MS = 500
WAIT_S = 6  # in the measure phase, before the fault
# A generator that runs a tenth of the time sends in bursts, which are late by up to this time.
STILL_S, RUNS_S = 1.0, 0.1
SETTINGS = {
    "slow_pipeline": {"slow_every_s": 8, "slow_ms": 400},
    "falling": {"falling_ms": 80, "falling_half_s": 10},
}
PIPELINE = """
name = "planted"
summary = "-"
engine = "calibration"
delay_ms = 5
"""


@dataclass(frozen=True)
class Kind:
    """The fault, and the part that a run must report for it; empty: none. steady: what it must
    report about that; None: anything."""

    name: str
    part: str
    steady: bool | None = None


KINDS = (
    Kind("hog", protocol.MACHINE),
    Kind("paused_broker", "broker"),
    Kind("slow_broker", "broker"),
    Kind("capped_generator", "generator"),
    Kind("paused_generator", "generator"),
    Kind("slow_pipeline", "pipeline"),
    Kind("paused_pipeline", "pipeline"),
    # Not the first: its start may disturb the first run of a stack.
    Kind("falling", "", steady=False),
    Kind("nothing", "", steady=True),
)


def pass_time(seconds: float) -> None:
    """Wait, also while the broker is paused."""
    until_s = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until_s, f"{seconds:g} s pass")


@contextmanager
def flapping(process: psutil.Process, still_s: float, runs_s: float) -> Iterator[None]:
    """Alternately pause and resume a process while the block runs."""
    over = threading.Event()

    def flap() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            over.wait(still_s)
            process.send_signal(signal.SIGCONT)
            over.wait(runs_s)

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _burn() -> None:
    while os.getppid() != 1:
        pass


@contextmanager
def hogs() -> Iterator[None]:
    """Two programs per core that use all CPU time, while the block runs."""
    programs = [
        multiprocessing.get_context("spawn").Process(target=_burn, daemon=True)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.join()


@contextmanager
def capped(stack: BreakableStack) -> Iterator[None]:
    """The generator gets little CPU time while the block runs."""
    (generator,) = stack.processes("generator")
    with flapping(generator, STILL_S, RUNS_S):
        yield


def _plant(stack: BreakableStack, kind: str) -> None:
    """Plant the fault in the middle of a run."""
    with ExitStack() as planted:
        if kind == "hog":
            planted.enter_context(hogs())
            pass_time(8)
        elif kind in ("paused_broker", "paused_generator", "paused_pipeline"):
            part = {"broker": "kafka", "pipeline": "driver"}.get(kind.removeprefix("paused_"))
            planted.enter_context(stack.paused(part or "generator"))
            pass_time(2.5)
        elif kind == "capped_generator":
            planted.enter_context(capped(stack))
            pass_time(8)
        elif kind == "slow_broker":
            (broker,) = stack.processes("kafka")
            planted.enter_context(flapping(broker, still_s=0.25, runs_s=0.15))
            pass_time(5)


def planted_run(stack: BreakableStack, kind: str) -> Report:
    """A run with this fault; returns its report."""
    path = stack.settings.data / "planted.pipeline.toml"
    settings = SETTINGS.get(kind, {})
    path.write_text(PIPELINE + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    run = stack.begin_load(
        pipeline=str(path),
        rate=RATE,
        measure_s=MEASURE_S,
        late_ms=SEND_DELAY_ALLOWED_MS,
    )
    stack.await_measuring()
    pass_time(WAIT_S)
    _plant(stack, kind)
    _code, report, said = stack.ended(run)
    assert report["late"], said
    return report


def names_it(told: dict[str, Any], kind: Kind) -> bool:
    """Whether a report or a conclusion names the fault. Without a fault nothing may be named.
    Whether a run was steady is judged by its report only.

    For the machine: it is the only part that disturbed the run; programs may use the cores without
    delaying anything. For the others: it disturbed the run, unless it is the pipeline, and is the
    cause of most late seconds.
    """
    if kind.steady is not None and told.get("steady", kind.steady) is not kind.steady:
        return False
    if not kind.part:
        return told["disturbed"] is False
    seconds, disturbed_by = told["late"]["by"], told["late"]["disturbed_by"]
    if kind.part == protocol.MACHINE:
        return disturbed_by == [protocol.MACHINE]
    if seconds[kind.part] <= max(n for part, n in seconds.items() if part != kind.part):
        return False
    if kind.part == "pipeline":
        return told["disturbed"] is False
    return kind.part in disturbed_by


def recording(settings: ServiceSettings, run_id: str, kind: Kind) -> dict[str, Any]:
    """The events of a run that the conductor reads."""
    events = [
        [topic, event]
        for topic in BUS
        for event in _events(settings, topic, run_id)
        if event.get("definition") != "mean"
    ]
    return {"kind": kind.name, "part": kind.part, "run_id": run_id, "events": events}


def _events(settings: ServiceSettings, topic: str, run_id: str) -> list[dict[str, Any]]:
    reader = Reader(settings, topic)
    try:
        return reader.everything(run_id)
    finally:
        reader.close()


def write(folder: Path, name: str, found: dict[str, Any]) -> None:
    """Write a recording."""
    text = json.dumps(found, separators=(",", ":"), default=_milliseconds)
    (folder / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def read(path: Path) -> dict[str, Any]:
    """Read a recording."""
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def _milliseconds(value: Any) -> int:
    return round(1000 * value.timestamp())


def main() -> None:
    """Record runs of every kind, or of the kinds given, and print how many were named."""
    folder, times, wanted = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind in KINDS if not wanted or kind.name in wanted]
    named = Counter[str]()
    with TemporaryDirectory() as data, breakable_stack(Path(data)) as stack:
        for kind in times * kinds:
            report = planted_run(stack, kind.name)
            named[kind.name] += names_it(report, kind)
            said = "named" if names_it(report, kind) else "NOT named"
            why = f"steady {report['steady']}; {report['late']['said']}"
            print(kind.name, report["run_id"], f"{said}: {why}", flush=True)
            found = recording(stack.settings, report["run_id"], kind)
            write(folder, f"{kind.name}-{report['run_id'][-4:]}", found)
    for kind in kinds:
        print(f"{kind.name}: {named[kind.name]} of {times}")


if __name__ == "__main__":
    main()
