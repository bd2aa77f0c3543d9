"""Look for change points once: `python -m services.conductor.changes [--publish] [--after RUN_ID]`.

Prints all that the history shows as JSON, one object per line, oldest first; `new` says of each
whether it was not told before. With --publish what is new becomes a conclusion `change_point` on
the bus. --after waits until the store has that run's conclusion and what came before it.
"""

import argparse
import json
import sys
import time

from services.conductor.changes.finding import Change, find_changes, is_known
from services.conductor.changes.series import read_series
from services.runtime.clickhouse import QueryError, query, store_url
from services.runtime.events import open_events
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings

PROJECTION_TIMEOUT_S = 30.0
SETTLED_S = 2.0  # from the conclusion's arrival in the store to that of what was published before
KNOWN = "SELECT detail FROM tidegauge.results_conclusions WHERE kind = 'change_point'"
CONCLUDED = (
    "SELECT count() AS n FROM tidegauge.results_conclusions"
    " WHERE run_id = {run_id:String} AND kind = 'run'"
)


def main(arguments: list[str]) -> int:
    """Read, find, print and publish; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services.conductor.changes")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--after", metavar="RUN_ID")
    options = parser.parse_args(arguments)
    settings = load_settings(ServiceSettings)
    url = store_url(settings)
    try:
        if options.after:
            await_conclusion(url, options.after)
        known = [json.loads(row["detail"]) for row in query(url, KNOWN)]
        found = [(change, is_known(change, known)) for change in find_changes(read_series(url))]
    except QueryError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    found.sort(key=lambda pair: pair[0].first_run_id)
    for change, is_old in found:
        print(json.dumps(change.detail() | {"new": not is_old}))
    if options.publish:
        publish(settings, [change for change, is_old in found if not is_old])
    return 0


def await_conclusion(url: str, run_id: str) -> None:
    """Wait until the store has a run's conclusion. Raises QueryError when it does not come."""
    deadline_s = time.monotonic() + PROJECTION_TIMEOUT_S
    while not query(url, CONCLUDED, run_id=run_id)[0]["n"]:
        if time.monotonic() > deadline_s:
            raise QueryError(f"the store has no conclusion of run {run_id}")
        time.sleep(0.5)
    time.sleep(SETTLED_S)


def publish(settings: ServiceSettings, changes: list[Change]) -> None:
    """Say on the bus what is new: an event of the first run after the change."""
    events = open_events(settings, "conductor")
    for change in changes:
        events.conclusion("change_point", change.first_run_id, (), change.detail())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
