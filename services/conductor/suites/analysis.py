"""Analyses the history in a separate process, in the pause after each run of a suite."""

import subprocess
import sys
import time

import structlog

log = structlog.get_logger()
TIMEOUT_S = 120.0
NICENESS = "10"


class Analysis:
    """At most one analysis at a time. It is stopped if it takes too long or the conductor ends; the
    next one finds what it would have found."""

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
            stdout=subprocess.DEVNULL,  # findings go to the bus, errors to our log
        )

    def goes_on(self) -> bool:
        """Whether it still uses processor time that would disturb a run."""
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
        """Stop it if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
