"""A sample whose share follows the rate: when it changes, and that its counts are exact."""

import json
from collections import Counter

import numpy as np
import pytest

from services.watcher.records import EXACT, LATE, LOST, hashes
from services.watcher.sampling import WHOLE
from services.watcher.watched import Watched
from tests.unit.watcher.one_by_one import verdicts_of
from tests.unit.watcher.records import a_watch
from tests.unit.watcher.test_watched import NAMES, records, totals

pytestmark = pytest.mark.unit

RELATION = {"deadline_ms": 2_000, "give_up_ms": 10_000, "remember_ms": 20_000}
BEGIN_MS = 1_000_000
# Inputs per second from the given second on; each has about one output.
RATES = ((0, 4), (30, 18), (90, 1))
END_S = 320


def traffic():
    """(identity, time) of inputs with distinct identities, and of outputs with faults."""
    inputs, outputs, number = [], [], 0
    for second in range(END_S):
        rate = next(rate for since, rate in reversed(RATES) if since <= second)
        for place in range(rate):
            at_ms = BEGIN_MS + 1_000 * second + 1_000 * place // rate
            inputs.append((number, at_ms))
            took_ms = 2_500 if number % 7 == 0 else 15_000 if number % 17 == 0 else 3
            if number % 11:
                outputs.append((number, at_ms + took_ms))
            if number % 13 == 0:
                outputs.append((number, at_ms + took_ms + 500))
            if number % 19 == 0:
                outputs.append((f"nobody-{number}", at_ms))
            number += 1
    return inputs, outputs


def a_bounded_watch():
    return a_watch(begin="earliest", relation=RELATION, max_per_second=10, run_s=3_600)


def run(cut_ms, killed_ms=None):
    """Events and changes of a watch that judges every `cut_ms`, and resumes from saved state."""
    watch = a_bounded_watch()
    watched, events, changes = Watched(watch, 0), [], []
    sides = [records(topic, side) for topic, side in zip(("in", "out"), traffic(), strict=True)]
    end_ms = BEGIN_MS + 1_000 * END_S + 60_000
    for before_ms in range(BEGIN_MS, end_ms + cut_ms, cut_ms):
        for topic, side in zip(("in", "out"), sides, strict=True):
            mine = [one for one in side if one.timestamp()[1] < before_ms]
            if mine:
                watched.take(topic, mine)
                del side[: len(mine)]
        events += watched.advance(before_ms)
        changes += watched.sampling.changes
        watched.sampling.changes.clear()
        if killed_ms is not None and before_ms >= killed_ms:
            arrays, rest = watched.saved()
            watched, killed_ms = Watched(watch, 0), None
            watched.restore(arrays, json.loads(json.dumps(rest)))
    return totals(events), [(one.from_ms - BEGIN_MS, one.share) for one in changes], watched


CHANGES = [(40_000, 0.25), (170_000, 0.5), (230_000, 1.0)]


def expected():
    """Verdicts of a loop over all records, for those in the share at their time."""
    latencies, verdicts = Counter(), Counter()
    inputs, outputs = traffic()
    by_name = {}
    for side, pairs in enumerate((inputs, outputs)):
        for name, ms in pairs:
            by_name.setdefault(str(name), ([], []))[side].append((name, ms))
    for name, (mine, theirs) in by_name.items():
        hash_ = hashes([name.encode()]).tolist()[0]
        told = verdicts_of(mine, theirs, a_bounded_watch().relation)
        for (verdict, input_ms, output_ms), count in told.items():
            about_ms = (output_ms if input_ms is None else input_ms) - BEGIN_MS
            share = next((s for since, s in reversed(CHANGES) if since <= about_ms), 1.0)
            if hash_ < share * WHOLE:
                verdicts["missing" if verdict == LOST else NAMES[verdict]] += count
                if verdict in (EXACT, LATE):
                    latencies[output_ms - input_ms] += count
    return latencies, verdicts


@pytest.mark.parametrize("cut_ms", [997, 10_000, 60_000])
def test_counts_are_exact_on_a_share_that_follows_the_rate(cut_ms):
    """Eight records a second, then 37, then two: at most ten are counted."""
    found, changes, watched = run(cut_ms)
    assert changes == CHANGES
    assert found == expected()
    begin, end = BEGIN_MS, BEGIN_MS + 200_000
    told = [(ms - BEGIN_MS, share) for ms, share in watched.sampling.shares(begin, end)]
    assert told == [(0, 1.0), *CHANGES[:2]]


def test_a_share_that_follows_the_rate_goes_on_from_what_was_saved():
    for killed_ms in (45_000, 160_000):
        found, changes, _ = run(2_003, BEGIN_MS + killed_ms)
        assert (found, changes) == (expected(), CHANGES)


def test_fewer_identities_are_remembered_once_the_share_is_smaller():
    watch = a_bounded_watch()
    watched = Watched(watch, 0)
    inputs = [(number, BEGIN_MS + 25 * number) for number in range(3_200)]  # 40 a second, 80 s
    watched.take("in", records("in", inputs))
    list(watched.advance(BEGIN_MS + 80_000))
    remembered = len(watched.ledger)
    assert 0.2 * 800 < remembered < 0.3 * 800


def test_there_is_no_bound_unless_one_is_asked_for():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0)
    watched.take("in", records("in", [(number, BEGIN_MS) for number in range(3_000)]))
    list(watched.advance(BEGIN_MS + 9_000))
    assert len(watched.ledger) == 3_000
    assert watched.sampling.shares(0, 1) == [(0, 1.0)]


def test_a_run_before_the_shares_that_are_remembered_has_the_first_of_them():
    _, _, watched = run(10_000)
    end_ms = BEGIN_MS + 20_000_000
    watched.take("in", records("in", [(number, end_ms) for number in range(200)]))
    list(watched.advance(end_ms + 20_000))
    assert watched.sampling.shares(0, 3_600_000) == [(0, 1.0)]


HOURS_S = 7_200
FULL_MS = BEGIN_MS + 600_000  # memory is full at this time
LOOK_MS = FULL_MS + 20_000  # the first look afterwards
READ_MS = LOOK_MS + 600_000 + 3_600_000  # calm for ten minutes; no later record was read
DOUBLED_MS = READ_MS + 20_000


def hours():
    """(identity, time) of an input every four seconds, and of outputs with faults."""
    inputs = [(number, BEGIN_MS + 4_000 * number) for number in range(HOURS_S // 4)]
    outputs = [(n, ms + (15_000 if n % 17 == 0 else 3)) for n, ms in inputs if n % 11]
    outputs += [(n, ms + 500) for n, ms in inputs if n % 13 == 0]
    return inputs, outputs


def after_a_peak(max_per_second, cut_ms=20_000, ahead_ms=0, killed_ms=None):
    """Events after memory was full for a moment, and the changes. Records are read `ahead_ms`
    before they can be judged; killed_ms: the watch resumes from what was saved then."""
    now = [0]
    watch = a_watch(
        begin="earliest", relation=RELATION, run_s=36_000, max_per_second=max_per_second
    )
    watched, events, changes = Watched(watch, 0, lambda: now[0]), [], []
    sides = [records(topic, side) for topic, side in zip(("in", "out"), hours(), strict=True)]
    for before_ms in range(BEGIN_MS, BEGIN_MS + 1_000 * HOURS_S + 60_000, cut_ms):
        now[0] = before_ms
        for topic, side in zip(("in", "out"), sides, strict=True):
            mine = [one for one in side if one.timestamp()[1] < before_ms + ahead_ms]
            if mine:
                watched.take(topic, mine)
                del side[: len(mine)]
        judged = list(watched.advance(before_ms))
        if before_ms == FULL_MS:
            watched.halve()
        if before_ms > FULL_MS:
            events += judged
            changes += filter(None, [watched.double()])
        if before_ms == killed_ms:
            arrays, rest = watched.saved()
            watched = Watched(watch, 0, lambda: now[0])
            watched.restore(arrays, json.loads(json.dumps(rest)))
    return events, [(one.from_ms, one.share) for one in changes], watched


def verdicts_about(events, since_ms):
    """Verdicts in seconds from a time on."""
    return totals(one for one in events if one.fields["second"] >= since_ms)[1]


def expected_after_a_peak(since_ms):
    found = Counter()
    inputs, outputs = hours()
    by_name = {name: ([(name, ms)], []) for name, ms in inputs}
    for name, ms in outputs:
        by_name[name][1].append((name, ms))
    for name, (mine, theirs) in by_name.items():
        hash_ = hashes([str(name).encode()]).tolist()[0]
        for (verdict, input_ms, output_ms), count in verdicts_of(
            mine, theirs, a_bounded_watch().relation
        ).items():
            if hash_ < (0.5 if input_ms < DOUBLED_MS else 1) * WHOLE:
                at_ms = input_ms if verdict == LOST else output_ms
                if at_ms >= since_ms:
                    found["missing" if verdict == LOST else NAMES[verdict]] += count
    return found


@pytest.mark.parametrize(
    ("max_per_second", "ahead_ms", "killed_ms"),
    [
        (0, 0, None),
        (0, 3_600_000, READ_MS - 1_200_000),
        (10, 0, READ_MS - 1_200_000),
        (10, 3_600_000, None),
    ],
)
def test_counts_are_exact_when_the_share_grows_again_after_memory_was_full(
    max_per_second, ahead_ms, killed_ms
):
    events, changes, watched = after_a_peak(max_per_second, ahead_ms=ahead_ms, killed_ms=killed_ms)
    assert changes == [(DOUBLED_MS, 1.0)]
    since_ms = FULL_MS + 30_000  # everything earlier was judged before
    assert verdicts_about(events, since_ms) == expected_after_a_peak(since_ms)
    assert watched.sampling.limit == watched.sampling.taken == WHOLE
    told = watched.sampling.shares(BEGIN_MS, DOUBLED_MS + 1)
    assert told == [(BEGIN_MS, 0.5), (DOUBLED_MS, 1.0)]


def a_full_watch(**fields):
    found = Watched(a_watch(begin="earliest", relation=RELATION, **fields), 0, lambda: BEGIN_MS)
    found.before_ms = BEGIN_MS
    found.halve()
    return found


def double_at(watched, *minutes):
    """Whether the share grows at some minutes."""
    found = []
    for minute in minutes:
        watched.before_ms = BEGIN_MS + 60_000 * minute
        found.append(watched.double() is not None)
    return found


def test_the_share_grows_only_after_ten_minutes_with_few_inputs():
    watched = a_full_watch(max_records=1_000)
    watched.take("in", records("in", [(number, BEGIN_MS) for number in range(600)]))
    list(watched.advance(BEGIN_MS + 1))
    assert 250 < len(watched.ledger) < 350
    assert double_at(watched, 1, 20, 40) == [False] * 3
    list(watched.advance(BEGIN_MS + 2_500_000))
    assert len(watched.ledger) == 0
    assert double_at(watched, 49, 50, 51) == [False, True, False]


def test_the_share_is_never_larger_than_that_of_the_watch_and_grows_step_by_step():
    watched = a_full_watch(share=0.25)
    watched.halve()
    assert double_at(watched, 0, 10) == [False, True]
    assert double_at(watched, 20, 60) == [False, False]  # the first step is an hour later
    assert double_at(watched, 80, 200) == [True, False]
    assert watched.sampling.limit == 0.25 * WHOLE


def test_a_share_that_is_small_because_of_the_rate_is_not_doubled_for_memory():
    sampling = a_full_watch(max_per_second=10).sampling
    sampling._steps.append((BEGIN_MS, WHOLE // 4))
    assert sampling.double(BEGIN_MS, BEGIN_MS) is None


def test_a_step_that_follows_the_rate_waits_for_records_read_with_the_smaller_limit():
    sampling = a_full_watch(max_per_second=10).sampling
    read_ms = BEGIN_MS + 500_000
    assert sampling.double(BEGIN_MS, read_ms).from_ms == read_ms + 20_000
    for slot, count in enumerate([400, *[1] * 9]):  # a peak, then calm
        sampling.count(np.full(count, BEGIN_MS + 10_000 * slot))
    list(sampling.ends(BEGIN_MS + 100_000))
    assert sampling._steps[1:] == [(BEGIN_MS + 10_000, WHOLE // 4), (read_ms + 20_000, WHOLE // 2)]
