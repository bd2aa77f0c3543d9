"""Where to send SQL: the store of the running stack, or a temporary one."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.data_folder import make_private
from deploy.local.preflight import check_ports
from deploy.local.variables import known_to
from services.runtime.answers import answer_to
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.settings import ROOT, ServiceSettings

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@contextmanager
def store_session(settings: ServiceSettings, is_running: Callable[[], bool]) -> Iterator[str]:
    """The URL of a store that accepts SQL while the context is open.

    Raises QueryError; raises StackError if a store must be started and its port is taken, for
    example by another stack, whose results would be those of other runs.
    """
    if settings.store_url or is_running():
        yield store_url(settings)
        return
    if not (settings.data / "clickhouse").is_dir():
        raise QueryError(f"There are no results in {settings.data}; start with: ./tidegauge run")
    make_private(settings.data, lambda _text: None)
    check_ports(settings, ["store"])
    log = settings.data / "logs" / "store-offline.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = _start(settings, log)
    try:
        _await_ready(settings, process, log)
        yield store_url(settings)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _start(settings: ServiceSettings, log: Path) -> "subprocess.Popen[bytes]":
    environment = {
        **known_to("store", os.environ),
        "TIDEGAUGE_OFFLINE": "true",
        "TIDEGAUGE_DATA": str(settings.data.absolute()),
        "PYTHONPATH": str(ROOT),
    }
    with open(log, "wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "services.store"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _await_ready(settings: ServiceSettings, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise QueryError(lines[-1] if lines else "The store exited without a message.")
        try:
            answer_to(f"{store_url(settings)}/health/ready", 1)
            return
        except OSError:
            time.sleep(0.05)
    raise QueryError("The store did not become ready within 30 s.")
