"""The command line as a user runs it: a process with output and exit code."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.end_to_end.documented import of_the_machine
from tests.listening import tree

ROOT = Path(__file__).resolve().parents[2]

LIMIT_S = 1_500  # shorter than pytest's limit of a test, far above what any command needs
WATCH_INTERVAL_S = 0.1
MOST_RUNS = 3


def is_disturbed(report: dict[str, Any]) -> bool:
    """Whether a run is INVALID only because the machine was busy."""
    return of_the_machine(" ".join(report["invalid_reasons"]))


class Seen(NamedTuple):
    """A process: its command line and its environment."""

    line: str
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CommandLine:
    """`./tidegauge` with its own data folder and ports."""

    data: Path
    base_port: int

    def __call__(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end. One that takes LIMIT_S fails the test with its output."""
        try:
            return subprocess.run(
                [str(ROOT / "tidegauge"), *arguments],
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            printed = b"".join(each for each in (expired.stdout, expired.stderr) if each)
            pytest.fail(f"{arguments} took {LIMIT_S} s and printed:\n{printed.decode()}")

    def measured(
        self,
        report: Path,
        *arguments: str,
        spoilt: Callable[[dict[str, Any]], bool] = is_disturbed,
        **environment: str,
    ) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
        """`run`, and its report, which is written to `report`. A spoilt run is repeated; there are
        at most MOST_RUNS."""
        for _ in range(MOST_RUNS):
            report.unlink(missing_ok=True)
            done = self("run", *arguments, "--report", str(report), **environment)
            assert report.exists(), done.stdout + done.stderr
            found: dict[str, Any] = json.loads(report.read_text())
            if not spoilt(found):
                break
        return done, found

    @contextmanager
    def stack(self, **environment: str) -> Iterator[None]:
        """A running stack during the context."""
        up = self("up", "--detach", **environment)
        assert up.returncode == 0, up.stdout + up.stderr
        try:
            yield
        finally:
            assert self("down").returncode == 0

    def begin(self, output: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command without waiting for it, in its own process group, as a shell does. Its
        output goes to a file."""
        with output.open("wb") as out:
            return subprocess.Popen(
                [str(ROOT / "tidegauge"), *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def running(self) -> list[psutil.Process]:
        """All processes started with this data folder."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TIDEGAUGE_DATA") == str(self.data):
                    found.append(process)
        return found

    def all_processes(self) -> list[psutil.Process]:
        """The same and all their descendants, such as programs of engines."""
        return [one for process in self.running() for one in tree(process.pid)]

    def processes(self) -> list[str]:
        """Their command lines."""
        found = []
        for process in self.running():
            with suppress(psutil.Error):
                found.append(" ".join(process.cmdline()))
        return found

    @contextmanager
    def watched(self) -> Iterator[set[Seen]]:
        """Collect the processes started with this data folder during the context, as any user of
        the machine can see them. Polls a few times a second."""
        seen: set[Seen] = set()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(WATCH_INTERVAL_S):
                for process in psutil.process_iter():
                    with suppress(psutil.Error):
                        line, variables = process.cmdline(), process.environ()
                        # Of a process that another program replaces just now, they do not match.
                        if line != process.cmdline():
                            continue
                        if variables.get("TIDEGAUGE_DATA") == str(self.data):
                            seen.add(Seen(" ".join(line), tuple(variables.items())))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()

    @property
    def environment(self) -> dict[str, str]:
        own = {"TIDEGAUGE_DATA": str(self.data), "TIDEGAUGE_BASE_PORT": str(self.base_port)}
        return os.environ | own | {"COLUMNS": "120"}
