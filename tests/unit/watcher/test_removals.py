"""Records that were removed before they could be read explain outputs without an input."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue
from services.watcher.removals import Removed
from services.watcher.watched import Watched
from tests.unit.watcher.records import a_watch, message

pytestmark = pytest.mark.unit

NOW_MS = 1_800_000_100_000
AT_MS = NOW_MS - 50_000
RELATION = {"deadline_ms": 2_000, "give_up_ms": 3_000, "remember_ms": 6_000}
PLACES = {("in", 0): 0, ("out", 0): 0}


def judged(watched):
    """Verdicts other than none, and the number of records by kind of what is not judged."""
    verdicts, rows = {}, {}
    for event in watched.advance(NOW_MS):
        if event.topic == catalogue.VERDICTS:
            for name in ("exact", "missing", "duplicate", "unexpected"):
                verdicts[name] = verdicts.get(name, 0) + event.fields[name]
    for run in watched.counting.totals.values():
        for row in run.not_judged.rows():
            rows[row["topic"], row["kind"]] = row["records"]
    return {name: count for name, count in verdicts.items() if count}, rows


def a_watched(compacted=(), places=PLACES):
    found = Watched(a_watch(begin="earliest", relation=RELATION), 0, clock=lambda: NOW_MS)
    found.removals.expect(places, frozenset(compacted))
    return found


def put(watched, topic, *records):
    """Offset, key and time after AT_MS of each record."""
    for offset, key, ms in records:
        watched.take(topic, [message(topic, b"v", key.encode(), AT_MS + ms, offset=offset)])


OUTPUTS = [(0, "v0", 100), (1, "v1", 200), (2, "v2", 300), (3, "last", 15_100)]


@pytest.mark.parametrize("keys", [("v0", "v1", "v2"), ("a", "a", "a")])
def test_outputs_of_inputs_that_compaction_removed_are_not_blamed_on_the_pipeline(keys):
    watched = a_watched(["in"])
    put(watched, "in", (2, keys[2], 201), (3, "last", 15_000))
    outputs = [(n, key, ms) for key, (n, _, ms) in zip((*keys, "last"), OUTPUTS, strict=True)]
    put(watched, "out", *outputs)
    verdicts, rows = judged(watched)
    assert set(verdicts) == {"exact"}
    assert rows == {("in", "removed"): 2, ("out", "unpaired"): 4 - verdicts["exact"]}
    (told,) = (
        row["reason"]
        for run in watched.counting.totals.values()
        for row in run.not_judged.rows()
        if row["kind"] == "unpaired"
    )
    assert "cleanup.policy=compact" in told
    assert "of in " in told


def test_an_output_long_after_the_removed_inputs_is_unexpected():
    watched = a_watched(["in"])
    put(watched, "in", (2, "v2", 201), (3, "last", 15_000))
    put(watched, "out", *OUTPUTS, (4, "invented", 15_200))
    verdicts, rows = judged(watched)
    assert verdicts == {"exact": 2, "unexpected": 1}
    assert rows["out", "unpaired"] == 2


def test_gaps_of_a_topic_that_is_not_compacted_explain_nothing():
    watched = a_watched()
    put(watched, "in", (2, "v2", 201), (3, "last", 15_000))
    put(watched, "out", *OUTPUTS)
    assert judged(watched) == ({"exact": 2, "unexpected": 2}, {})


def test_gaps_between_records_that_came_while_the_watch_ran_explain_nothing():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0, clock=lambda: AT_MS)
    watched.removals.expect(PLACES, frozenset(["in"]))
    put(watched, "in", (2, "v2", 201), (3, "last", 15_000))
    put(watched, "out", *OUTPUTS)
    assert judged(watched) == ({"exact": 2, "unexpected": 2}, {})


def test_inputs_whose_outputs_compaction_removed_are_not_missing():
    watched = a_watched(["out"])
    put(watched, "in", (0, "v0", 0), (1, "v1", 100), (2, "v2", 200), (3, "lost", 20_000))
    put(watched, "out", (2, "v2", 300))
    verdicts, rows = judged(watched)
    assert verdicts == {"exact": 1, "missing": 1}
    assert rows == {("out", "removed"): 2, ("in", "unpaired"): 2}


@pytest.mark.parametrize("is_empty", [False, True])
def test_so_are_outputs_of_inputs_that_retention_removed(is_empty):
    watched = a_watched()
    watched.removals.expect_cut(("in", 0), True, is_empty)
    watched.removals.expect({("in", 0): 7, ("out", 0): 0}, frozenset())
    arrays, rest = watched.saved()
    again = a_watched()
    again.restore(arrays, json.loads(json.dumps(rest)))
    again.removals.expect({("in", 0): 7, ("out", 0): 0}, frozenset())
    for one in (watched, again):
        put(one, "out", *OUTPUTS)
        if not is_empty:
            put(one, "in", (7, "last", 15_000))
        verdicts, rows = judged(one)
        assert verdicts == ({} if is_empty else {"exact": 1})
        assert rows == {("out", "unpaired"): 4 if is_empty else 3}


SPANS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 30)), max_size=12)


@given(SPANS, SPANS)
def test_a_span_touches_a_stretch_as_in_the_definition(stretches, spans):
    removed = Removed(5)
    for start, length in stretches:
        removed.add(start, start + length)
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([start + length + 5 for start, length in spans], np.int64)
    expected = [
        any(begin <= end and begin + length >= start for begin, length in stretches)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    assert removed.touches(starts, ends).tolist() == expected
