"""Latency at a steady rate: runs of the workload `latency` on a separate stack."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.settings import ROOT
from tests.integration.kafka_broker import free_base_port

RUN_S = 900
# The first minute shows how a JVM starts, which the default workload measures.
WARM_UP_S = 90


@dataclass(frozen=True)
class Stack:
    """A running stack."""

    data: Path
    base_port: int

    def run(
        self, pipeline: str, stages: str, rate: int, seconds: int, warm_up_s: int = WARM_UP_S
    ) -> dict[str, Any]:
        """The report of one run, valid or not. Raises RuntimeError with the output if there is
        none."""
        report = self.data / "report.json"
        report.unlink(missing_ok=True)
        done = self.tidegauge(
            *("run", "latency", "--pipeline", pipeline, "--stages", stages),
            *("--rate", str(rate), "--warm-up", str(warm_up_s), "--duration", str(seconds)),
            *("--report", str(report)),
        )
        if not report.exists():
            raise RuntimeError(done.stdout + done.stderr)
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def tidegauge(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `./tidegauge` on this stack."""
        return subprocess.run(
            [str(ROOT / "tidegauge"), *arguments],
            env=os.environ
            | {"TIDEGAUGE_DATA": str(self.data), "TIDEGAUGE_BASE_PORT": str(self.base_port)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )


@contextmanager
def running_stack(data: Path, suite: str = "") -> Iterator[Stack]:
    """A stack with its own state and ports. suite: its file, or empty for none."""
    stack = Stack(data, free_base_port())
    try:
        up = stack.tidegauge("up", *filter(None, [suite]), "--detach")
        if up.returncode:
            raise RuntimeError(up.stdout + up.stderr)
        yield stack
    finally:
        stack.tidegauge("down")
