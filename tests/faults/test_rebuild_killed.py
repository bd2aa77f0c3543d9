"""Kills the store with SIGKILL at random times of a rebuild; afterwards all results are unchanged.

The times depend on a seed, which is printed: TIDEGAUGE_FAULTS_SEED=… repeats them.
"""

import json
import os
import random
import secrets
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from services.runtime.clickhouse import QueryError, query, store_url
from services.store.tables import TABLES
from tests.faults.breakable_stack import (
    BreakableStack,
    breakable_stack,
    eventually,
    every_event_once,
)

pytestmark = pytest.mark.faults

SEED = int(os.environ.get("TIDEGAUGE_FAULTS_SEED") or secrets.randbelow(1_000_000))
KILLS = 8
NAMES = [*(table.name for table in TABLES.values()), "latency_minutes"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    small = {"TIDEGAUGE_BATCH_ROWS": "100", "TIDEGAUGE_BATCH_SECONDS": "0.1"}
    with breakable_stack(tmp_path_factory.mktemp("stack"), **small) as found:
        yield found


def answers(stack: BreakableStack, run_id: str) -> dict[str, object]:
    """Number and digest of a run's rows in every table, and its row of the view of runs."""
    found: dict[str, object] = {}
    for name in NAMES:
        is_rollup = name == "latency_minutes"  # its offset is the greatest of the summed rows
        rows = f"(SELECT * EXCEPT (_offset) FROM {name} FINAL)" if is_rollup else name
        (row,) = query(
            store_url(stack.settings),
            f"SELECT count() AS n, toString(sum(cityHash64(tuple(*)))) AS digest FROM {rows}"
            f" WHERE run_id = '{run_id}'",
        )
        found[name] = (row["n"], row["digest"])
    found["runs"] = query(
        store_url(stack.settings), f"SELECT * FROM runs WHERE run_id = '{run_id}'"
    )
    return found


def as_before(stack: BreakableStack, run_id: str, before: dict[str, object]) -> bool:
    try:
        return answers(stack, run_id) == before
    except QueryError:
        return False  # the store or its tables are not up yet


def rebuild_status(stack: BreakableStack, method: str) -> str:
    """State of the rebuild; POST requests one."""
    url = store_url(stack.settings)
    request = urllib.request.Request(f"{url}/rebuild", headers=url.headers("admin"), method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["state"])


def seconds_of_rebuild(stack: BreakableStack) -> float:
    """Duration of a rebuild that is not killed."""
    begun_s = time.monotonic()
    rebuild_status(stack, "POST")
    eventually(lambda: rebuild_status(stack, "GET") == "done", "the rebuild is done")
    return time.monotonic() - begun_s


def test_a_rebuild_that_is_killed_at_any_moment_changes_no_answer(stack: BreakableStack) -> None:
    report = stack.has_clean_run()
    run_id = report["run_id"]
    before = answers(stack, run_id)
    assert before["results_latency"][0] > 100  # type: ignore[index]
    longest_s = seconds_of_rebuild(stack)
    for number in range(KILLS):
        moment_s = random.Random(f"{SEED} {number}").uniform(0, longest_s)
        print(f"TIDEGAUGE_FAULTS_SEED={SEED}: kill {number} after {moment_s:.3f} s")
        (store,) = stack.processes("store")
        rebuild_status(stack, "POST")
        threading.Event().wait(moment_s)
        store.send_signal(signal.SIGKILL)
        restarted = number + 1
        eventually(lambda n=restarted: stack.restarts()["store"] == n, "the store starts again")
        eventually(stack.is_ready, "every part serves again")
        eventually(lambda: as_before(stack, run_id, before), "the answers are as before")
    every_event_once(stack)
    stack.has_clean_run()
    assert as_before(stack, run_id, before)
