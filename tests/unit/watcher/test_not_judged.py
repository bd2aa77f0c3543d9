"""Records that are read and not judged are counted with the reason."""

import json

import pytest

from services.watcher.extracting import MAX_REASONS
from services.watcher.troubles import UnjudgedRecords, UnjudgedRow
from services.watcher.watched import AFTER, AHEAD, BEFORE, OLD, Watched
from tests.unit.watcher.records import a_watch, message

pytestmark = pytest.mark.unit

NOW_MS = 1_800_000_100_000
SINCE_MS = NOW_MS - 20_000
RELATION = {"deadline_ms": 2_000, "give_up_ms": 3_000, "remember_ms": 6_000}
SECONDS = "its timestamp seems to be in seconds instead of milliseconds"


def reasons(watched, kind):
    """Number of records by reason over all runs."""
    rows = [one for run in watched.counting.totals.values() for one in run.not_judged.rows()]
    return {row["reason"]: row["records"] for row in rows if row["kind"] == kind}


def a_watched(since_ms=SINCE_MS, **fields):
    return Watched(a_watch(relation=RELATION, **fields), since_ms, clock=lambda: NOW_MS)


def taken(watched, *times_ms, topic="in", first=0):
    for number, ms in enumerate(times_ms, first):
        watched.take(topic, [message(topic, b"v", b"k%d" % number, ms, offset=number)])
    return watched


@pytest.mark.parametrize(
    ("time_ms", "reason"),
    [
        (1_767_225_600, SECONDS),
        (0, "it has no timestamp"),
        (-1, "it has no timestamp"),
        (SINCE_MS - 6_001, OLD),
        (NOW_MS + 7_200_000, AHEAD),
        (1_000 * NOW_MS, "its timestamp seems to be in microseconds instead of milliseconds"),
        (10**6 * NOW_MS, "its timestamp seems to be in nanoseconds instead of milliseconds"),
    ],
)
def test_a_timestamp_of_no_use_is_refused_with_the_reason(time_ms, reason):
    watched = taken(a_watched(), time_ms, SINCE_MS + 5_000, time_ms)
    assert reasons(watched, "refused") == {reason: 2}
    (totals,) = (one for one in watched.counting.totals.values() if one.refused)
    assert totals.refused == 2
    (row,) = totals.not_judged.rows()
    assert (row["topic"], row["partition"], row["offset"]) == ("in", 0, 0)


@pytest.mark.parametrize("time_ms", [1_767_225_600, 0])
def test_that_also_holds_for_a_watch_from_the_earliest_record(time_ms):
    watched = taken(a_watched(0, begin="earliest"), time_ms, SINCE_MS - 10**9)
    assert sum(reasons(watched, "refused").values()) == 1
    assert sorted(one.inputs for one in watched.counting.totals.values()) == [0, 1]


def test_what_was_there_before_the_watch_began_is_not_told():
    watched = a_watched()
    watched.live_from = {("in", 0): 3}
    taken(watched, 1_767_225_600, SINCE_MS - 60_000, SINCE_MS - 5_000)
    assert not watched.counting.totals
    taken(watched, SINCE_MS - 5_000, SINCE_MS - 900, first=3)
    assert (reasons(watched, "outside"), reasons(watched, "refused")) == ({BEFORE: 1}, {})


def test_records_after_the_end_of_a_watch_are_told_at_its_end():
    watched = taken(a_watched(), SINCE_MS + 5_000, NOW_MS + 900, NOW_MS + 60_000)
    list(watched.advance(NOW_MS - 300))
    watched.end()
    assert reasons(watched, "outside") == {AFTER: 1}


def test_rows_have_a_bound_and_survive_a_restart():
    found = UnjudgedRecords()
    for number in range(100):
        found.add(UnjudgedRow("in", "refused", f"reason {number}", 2, 0, number))
    assert len(found.rows()) == MAX_REASONS + 1
    assert sum(row["records"] for row in found.rows()) == 200
    watched = taken(a_watched(), 1_767_225_600)
    watched.live_from = {("in", 0): 1}
    arrays, rest = watched.saved()
    again = a_watched()
    again.restore(arrays, json.loads(json.dumps(rest)))
    assert reasons(again, "refused") == {SECONDS: 1}
    assert again.live_from == {("in", 0): 1}
