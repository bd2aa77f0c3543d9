"""Stacks that this command does not start: one that runs elsewhere, in containers or a cluster
(TIDEGAUGE_STORE_URL), and where to send SQL: the store of a running stack, or a temporary one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from deploy.local.broker import known_to
from deploy.local.parts import StackPart, stack_parts
from deploy.local.stack import Stack, StackError, StackStatus
from deploy.local.startup import check_ports
from deploy.local.state import make_private
from services.runtime.clickhouse import QueryError, answer_to, store_url
from services.runtime.process import now_ms
from services.runtime.settings import ROOT, ServiceSettings

READY_TIMEOUT_S = 5.0
STORE_READY_S = 30.0
STOP_TIMEOUT_S = 10.0


NEEDED: Final = "chdb"  # of the packages of a stack, the one that nothing else needs


def check_packages() -> None:
    """Raises ModuleNotFoundError if the packages of a stack are not installed."""
    if find_spec(NEEDED) is None:
        raise ModuleNotFoundError(name=NEEDED)


def open_stack(
    settings: ServiceSettings,
    parts: Callable[[ServiceSettings], tuple[StackPart, ...]] = stack_parts,
) -> "Stack | RemoteStack":
    """The stack of this machine, or the remote one if the settings name its store.

    parts: of a stack to start, by the settings.
    """
    if settings.store_url:
        return RemoteStack(settings)
    check_packages()
    return Stack(settings, parts(settings))


def public_address(settings: ServiceSettings) -> str:
    """Public address of the store, which may differ from the one that services use."""
    return settings.public_url or str(store_url(settings))


def dashboards(settings: ServiceSettings) -> str:
    """Address of the dashboards."""
    return f"{public_address(settings)}/dashboards/"


def run_page(settings: ServiceSettings, run_id: str) -> str:
    """Address of the dashboard about a run, with the time from its request until now."""
    asked = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    span = f"from={1000 * int(asked.timestamp())}&to={now_ms() + 5000}"
    return f"{dashboards(settings)}d/tidegauge-run?var-run={run_id}&{span}"


def watch_page(settings: ServiceSettings) -> str:
    """Address of the dashboard about watches."""
    return f"{dashboards(settings)}d/tidegauge-watch"


def answering(settings: ServiceSettings) -> AbstractContextManager[str]:
    """The store's URL; starts a temporary store if none is running."""
    return store_session(settings, lambda: open_stack(settings).status().running)


class RemoteStack:
    """The interface of `Stack` for services that are managed elsewhere."""

    attached = True

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings

    def up(
        self, on_progress: Callable[[str], None], _once_leading: Callable[[], None] | None = None
    ) -> None:
        """Check once whether the store is ready. Raises StackError."""
        if not self._is_ready():
            raise StackError(
                f"the store at {self.settings.store_url} is not ready; TIDEGAUGE_STORE_URL says"
                " that the services run elsewhere; see the log of the store there",
            )
        on_progress(f"using the services of {self.settings.store_url}")

    def up_detached(self, _on_progress: Callable[[str], None]) -> None:
        """Not supported for a remote stack. Raises StackError."""
        raise self._not_ours()

    def down(self, _on_progress: Callable[[str], None]) -> bool:
        """Not supported for a remote stack. Raises StackError."""
        raise self._not_ours()

    def close(self, _on_progress: Callable[[str], None]) -> None:
        """Do nothing: nothing was started."""

    def check(self) -> None:
        """Do nothing: remote services are supervised elsewhere, and the run notices missing
        ones."""

    def status(self) -> StackStatus:
        """Whether the store is ready; the other parts are not known here."""
        url = public_address(self.settings)
        return StackStatus(
            self._is_ready(), self.settings.open_bootstrap, url, f"{url}/dashboards/", services=()
        )

    def _is_ready(self) -> bool:
        address = f"{self.settings.store_url}/health/ready"
        try:
            answer_to(address, READY_TIMEOUT_S)
        except OSError:
            return False
        return True

    def _not_ours(self) -> StackError:
        return StackError(
            "the services run elsewhere (TIDEGAUGE_STORE_URL), so start and stop them there",
        )


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
    check_packages()
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
    deadline_s = time.monotonic() + STORE_READY_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            last = lines[-1].removeprefix("tidegauge: ") if lines else ""
            raise QueryError(last or "The store exited without a message.")
        try:
            answer_to(f"{store_url(settings)}/health/ready", 1)
            return
        except OSError:
            time.sleep(0.05)
    raise QueryError("The store did not become ready within 30 s.")
