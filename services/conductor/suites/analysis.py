"""Analyses the history in a separate process, in the pause after each run of a suite, and while no
run is carried out after each run of a watch."""

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
        self._run_id = self._wanted = ""  # of the run that is awaited, now and next

    def want(self, run_id: str) -> None:
        """Begin at the next `tick` at which none is going on."""
        self._wanted = run_id

    def tick(self) -> None:
        """Begin what is wanted."""
        if not self.goes_on() and self._wanted:
            self.begin(self._wanted)

    def give_way(self) -> None:
        """Stop it for a run; it is wanted again afterwards."""
        if self.goes_on():
            self._wanted = self._wanted or self._run_id
            self.end()

    def begin(self, run_id: str) -> None:
        """Look for change points once the store knows this run."""
        self.end()
        self._run_id, self._wanted = run_id, ""
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
