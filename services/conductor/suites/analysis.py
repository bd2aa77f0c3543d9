"""Looks at the history after each run of a suite, in a process of its own, in the pause."""

import subprocess
import sys
import time

import structlog

log = structlog.get_logger()
TIMEOUT_S = 120.0
NICENESS = "10"


class Analysis:
    """At most one look at a time; one that takes too long, or is still going on when the conductor
    ends, is ended. What it would have found, the next one finds."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0

    def begin(self, run_id: str) -> None:
        """Look for change points once the store knows this run."""
        self.end()
        command = [
            "nice",
            "-n",
            NICENESS,
            sys.executable,
            "-m",
            "analysis.changes",
            "--publish",
        ]
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "--after", run_id],
            stdout=subprocess.DEVNULL,  # what it finds is on the bus; errors go to our log
        )

    def goes_on(self) -> bool:
        """Whether it still takes processor time, which a run would notice."""
        if self._process is None:
            return False
        code = self._process.poll()
        if code is None and time.monotonic() - self._began_s < TIMEOUT_S:
            return True
        if code is None:
            log.warning("changes_not_looked_for", longer_than_s=TIMEOUT_S)
            self.end()
        elif code:
            log.warning("changes_not_looked_for", exit_code=code)
        self._process = None
        return False

    def end(self) -> None:
        """End it if it goes on."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
