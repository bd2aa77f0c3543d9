"""The command line as a person uses it: a process, its output, its exit code."""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class CommandLine:
    """`./tidegauge` with its own state and ports. timeout_s: how long a command may take; it is to
    be shorter than what pytest allows the test."""

    data: Path
    base_port: int
    timeout_s: float = 280

    def __call__(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(ROOT / "tidegauge"), *arguments],
            env=self._environment() | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )

    def begin(self, output: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        """The same without waiting for its end, in a process group of its own, as a shell does it;
        what it says is in a file."""
        with output.open("wb") as out:
            return subprocess.Popen(
                [str(ROOT / "tidegauge"), *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def processes(self) -> list[str]:
        """Command lines of all processes that were started with this state."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TIDEGAUGE_DATA") == str(self.data):
                    found.append(" ".join(process.cmdline()))
        return found

    def _environment(self) -> dict[str, str]:
        own = {"TIDEGAUGE_DATA": str(self.data), "TIDEGAUGE_BASE_PORT": str(self.base_port)}
        return os.environ | own | {"COLUMNS": "120"}
