"""Driver processes: how the agent starts, stops and buries them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.05
SPARK = "services.spark_pipeline.driver"
TAIL_BYTES = 65_536
REASON_CHARACTERS = 600
# Lines of a log that do not say why: stack frames, and Spark's notices while it shuts down.
NOT_MEANINGFUL = ("at ", "File ", "...", "Traceback (", "^", "~")


@dataclass(frozen=True)
class Driver:
    """One running pipeline of one run."""

    pipeline: str
    run_id: str
    process: "subprocess.Popen[bytes]"
    log: Path
    program: str = SPARK


def start_driver(pipeline: str, run_id: str, plan: Path, log: Path, program: str = SPARK) -> Driver:
    """Start a program (a Python module) in a process group of its own, with
    its output in `log`.

    The log holds the newest run only, which bounds it. The driver's standard input is a pipe from
    this process: when this process ends, however it ends, the driver does.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", program]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--pipeline", pipeline, "--plan", str(plan)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Driver(pipeline, run_id, process, log, program)


def stop_drivers(drivers: list[Driver], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ask all drivers to stop, wait up to `timeout_s` for all of them, and end what is left."""
    for driver in drivers:
        driver.process.terminate()
    deadline = time.monotonic() + timeout_s
    while any(driver.process.poll() is None for driver in drivers):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_INTERVAL_S)
    for driver in drivers:
        bury(driver)


def bury(driver: Driver) -> None:
    """End whatever is left of a driver's process group: itself and its JVM."""
    with contextlib.suppress(ProcessLookupError):  # nothing is left
        os.killpg(driver.process.pid, signal.SIGKILL)
    driver.process.wait()
    if driver.process.stdin is not None:
        driver.process.stdin.close()


def read_tail(log: Path) -> str:
    """The last 64 KiB of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")


def last_meaningful_line(text: str) -> str:
    """The last line of a log that says something: neither blank nor part of a stack trace."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    found = next((line for line in lines if line and not line.startswith(NOT_MEANINGFUL)), "")
    return found[:REASON_CHARACTERS] or "its log says nothing"
