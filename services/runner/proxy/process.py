"""The process of a pipeline's proxy. The runner keeps the socket that the clients of the pipeline
connect to, so a proxy that is killed is started again at the same address, and connections wait
meanwhile."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.model import Model
from services.runtime.program import PROXY_MODULE
from services.runtime.settings import ROOT, ServiceSettings

LOOPBACK: Final = "127.0.0.1"
QUEUED_CONNECTIONS: Final = 256
STOP_TIMEOUT_S: Final = 10.0


class Orders(Model):
    """What a proxy is told: the run that its events are of, the pipeline, and the input topics.
    slow_ms: delay of every answer while the network is slow."""

    run_id: str
    pipeline: str
    topics: tuple[str, ...]
    slow_ms: int = 0


class FetchProxy:
    """One proxy. settings: of the runner. log: the file of its log lines, which it begins anew.
    environ: variables with these settings. bootstrap: the address for the pipeline's clients."""

    def __init__(
        self,
        settings: ServiceSettings,
        orders: Orders,
        log: Path,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._environment = {**environ, **settings.child_variables}
        self._orders = orders
        self._log = log
        self._socket = listening_socket()
        self.bootstrap = f"{LOOPBACK}:{self._socket.getsockname()[1]}"
        self.process = self._start()

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()

    def serve_run(self, run_id: str) -> None:
        """Events are of another run from now on."""
        self._orders = self._orders.model_copy(update={"run_id": run_id})
        self._tell()

    def start_again(self) -> None:
        """Start the proxy anew after its process has ended."""
        self._close_pipe()
        self.process = self._start()

    def stop(self) -> None:
        """Let it publish the rest and end."""
        self._close_pipe()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._socket.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._log.parent.mkdir(parents=True, exist_ok=True)
        number = self._socket.fileno()
        with self._log.open("wb") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PROXY_MODULE, str(number), self._orders.pipeline],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=lines,
                stderr=lines,
                pass_fds=(number,),
                start_new_session=True,
            )
        self._tell()
        return self.process

    def _tell(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the runner will see
            self.process.stdin.write(self._orders.model_dump_json().encode() + b"\n")
            self.process.stdin.flush()

    def _close_pipe(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def listening_socket() -> socket.socket:
    """A socket that listens on a free port of loopback."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.bind((LOOPBACK, 0))
    opened.listen(QUEUED_CONNECTIONS)
    return opened
