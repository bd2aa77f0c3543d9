"""Search for change points once: `python -m analysis.changes [--publish] [--after RUN_ID]`.

Prints all change points of the history as JSON, one object per line, oldest first; `new` is true
for those not published before. With --publish each new one becomes a conclusion `change_point` on
the bus. --after waits until the store has that run's conclusion and everything before it.
"""

import argparse
import json
import sys
import time
from typing import Any

from analysis.changes.finding import Change, find_changes, is_known
from analysis.changes.series import read_series
from schemas.events import ChangePointFound
from services.runtime.clickhouse import QueryError, query, store_url
from services.runtime.events import open_events
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings

PROJECTION_TIMEOUT_S = 30.0
SETTLED_S = 2.0  # wait after the conclusion's arrival in the store for records published before it
KNOWN = "SELECT detail FROM tidegauge.results_conclusions WHERE kind = 'change_point'"
CONCLUDED = (
    "SELECT count() AS n FROM tidegauge.results_conclusions"
    " WHERE run_id = {run_id:String} AND kind = 'run'"
)


def main(arguments: list[str]) -> int:
    """Read, analyse, print and publish; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.changes")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--after", metavar="RUN_ID")
    options = parser.parse_args(arguments)
    settings = load_settings(ServiceSettings)
    try:
        if options.after:
            await_conclusion(store_url(settings), options.after)
        for change in look_for_changes(settings, options.publish):
            print(json.dumps(change))
    except QueryError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def look_for_changes(settings: ServiceSettings, publishes: bool) -> list[dict[str, Any]]:
    """All change points of the history, oldest first; `new` is true for those not published before.

    publishes: publish each new one as a conclusion on the bus. Raises QueryError.
    """
    url = store_url(settings)
    known = [json.loads(row["detail"]) for row in query(url, KNOWN)]
    found = sorted(find_changes(read_series(url)), key=lambda change: change.first_run_id)
    new = [change for change in found if not is_known(change, known)]
    if publishes:
        publish(settings, new)
    return [change.detail() | {"new": change in new} for change in found]


def await_conclusion(url: str, run_id: str) -> None:
    """Wait until the store has a run's conclusion. Raises QueryError on timeout."""
    deadline_s = time.monotonic() + PROJECTION_TIMEOUT_S
    while not query(url, CONCLUDED, run_id=run_id)[0]["n"]:
        if time.monotonic() > deadline_s:
            raise QueryError(f"the store has no conclusion of run {run_id}")
        time.sleep(0.5)
    time.sleep(SETTLED_S)


def publish(settings: ServiceSettings, changes: list[Change]) -> None:
    """Publish new changes, as an event of the first run after the change."""
    events = open_events(settings, "conductor")
    for change in changes:
        events.publish(ChangePointFound(run_id=change.first_run_id, **change.detail()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
