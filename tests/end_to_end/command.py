"""The command line as a person uses it: a process, its output, its exit code."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 280


@dataclass(frozen=True)
class CommandLine:
    """`./tidegauge` with its own state and ports."""

    data: Path
    base_port: int

    def __call__(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(ROOT / "tidegauge"), *arguments],
            env={
                **os.environ,
                "TIDEGAUGE_DATA": str(self.data),
                "TIDEGAUGE_BASE_PORT": str(self.base_port),
                "COLUMNS": "120",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
