"""Analyses the history in a separate process, in the pause after each run of a suite, and while no
run is carried out after each run of a watch.

    python -m services.conductor.suites.analysis RUN_ID

waits until the store has the conclusion of that run and everything before it, and publishes each
new change point as a conclusion `change_point`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from schemas.events import ChangePointFound
from services.readmodel.history import published_changes, read_series
from services.readmodel.runs import is_concluded
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.events import open_events
from services.runtime.logs import get_log
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings

log = get_log()
TIMEOUT_S = 120.0
NICENESS = 10
PROJECTION_TIMEOUT_S = 30.0
POLL_S = 0.5
SETTLED_S = 2.0  # wait after the conclusion's arrival in the store for records published before it


def _start(run_id: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "services.conductor.suites.analysis", run_id],
        stdout=subprocess.DEVNULL,  # changes go to the bus, errors to our log
    )


class Analysis:
    """At most one analysis at a time. It is stopped if it takes too long or the conductor ends; the
    next one finds what it would have found. start: starts the analysis for a run id."""

    def __init__(
        self,
        start: Callable[[str], "subprocess.Popen[bytes]"] = _start,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._clock_s = start, clock_s
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
        self._began_s = self._clock_s()
        self._process = self._start(run_id)

    def goes_on(self) -> bool:
        """Whether it still uses processor time that would disturb a run."""
        if self._process is None:
            return False
        code = self._process.poll()
        if code is None and self._clock_s() - self._began_s < TIMEOUT_S:
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


def main(run_id: str) -> int:
    """Search once, with low priority; returns the exit code."""
    from analysis.changes.finding import all_changes  # slow: imports numpy

    os.nice(NICENESS)
    settings = load_settings(ServiceSettings)
    url = store_url(settings)
    try:
        await_conclusion(url, run_id)
        events = open_events(settings, "conductor")
        for change, is_new in all_changes(read_series(url), published_changes(url)):
            if is_new:
                events.publish(ChangePointFound(run_id=change.first_run_id, **change.detail()))
    except QueryError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def await_conclusion(url: str, run_id: str) -> None:
    """Wait until the store has a run's conclusion. Raises QueryError on timeout."""
    deadline_s = time.monotonic() + PROJECTION_TIMEOUT_S
    while not is_concluded(url, run_id):
        if time.monotonic() > deadline_s:
            raise QueryError(f"the store has no conclusion of run {run_id}")
        time.sleep(POLL_S)
    time.sleep(SETTLED_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
