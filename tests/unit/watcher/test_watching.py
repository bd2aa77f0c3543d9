"""Runs, problems and counts of a running watch, with lists in place of a bus and a cluster."""

import json
import threading
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from schemas import catalogue
from schemas.events import Concluded, WatchBegun, WatchTrouble
from services.definitions.watches import keep_watch
from services.runtime.process import now_ms
from services.watcher import process
from services.watcher.group_lag import MOST_UNKNOWN_MS, ObservedGroup, PartitionLag
from services.watcher.position import PublishedSince
from services.watcher.troubles import Trouble
from services.watcher.watched import CALM_MS
from tests.unit.watcher.records import a_watch, message
from tests.unit.watcher.watches import shop, watched

pytestmark = pytest.mark.unit

LOST = {"topic": "in", "records": 7}
WHY = "7 records of in were deleted before they were read."
PATIENT = {"deadline_ms": 10, "give_up_ms": 20_000, "remember_ms": 50_000}


def name(run, beginning=1):
    return f"watch-w-19700101-{run * 5 // 60:04}{run * 5 % 60:02}-{beginning}"


def records(*times, kind=TIMESTAMP_CREATE_TIME):
    return [message("in", None, b"%d" % ms, ms, offset=ms, kind=kind) for ms in times]


def step(watching, end_ms, *times):
    watching.reader.records, watching.reader.end_ms = records(*times), end_ms
    watching.step()


def reasons(bus):
    """Why each concluded run is invalid."""
    return {
        run_id: fields["invalid_reasons"]
        for topic, run_id, fields in bus.events
        if topic == catalogue.CONCLUSIONS
    }


def thresholds(bus):
    """Threshold, value and whether it passed, by concluded run."""
    return {
        run_id: [
            (row["threshold"], row["value"], row["passed"])
            for row in json.loads(fields["detail"]).get("thresholds", ())
        ]
        for topic, run_id, fields in bus.events
        if topic == catalogue.CONCLUSIONS
    }


def lifecycle(bus, event):
    return [
        run_id
        for topic, run_id, fields in bus.events
        if topic == catalogue.LIFECYCLE and fields["event"] == event
    ]


def invalidated(bus):
    """Why a run becomes invalid, by the events of problems."""
    return [
        (run_id, json.loads(fields["detail"])["invalid"])
        for _, run_id, fields in bus.events
        if fields.get("event") == WatchTrouble.name
    ]


def sums(bus, topic, count):
    found = Counter()
    for of, run_id, fields in bus.events:
        if of == topic:
            found[run_id] += fields[count]
    return found


def test_every_run_that_may_have_lost_records_is_invalid_and_no_other(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.reader.troubles = [Trouble("retention_overtook", LOST, until_ms=26_000)]
    step(watching, 60_000, 12_000, 21_000, 27_000, 31_000)
    step(watching, 70_000)
    lost = {name(run): [WHY] if run in (2, 4, 5) else [] for run in (1, 2, 4, 5, 6, 11)}
    assert reasons(bus) == lost
    assert invalidated(bus) == [(name(2), WHY)]


def test_runs_that_are_judged_later_are_also_invalid(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.reader.troubles = [Trouble("retention_overtook", LOST, until_ms=26_000)]
    step(watching, None)
    watching.save()
    again = process.open_watching(shop(run_s=5), context)
    for end_ms in (14_000, 24_000, 34_000, 44_000):
        step(again, end_ms, end_ms - 1_000)
    again.end()
    lost = {name(run): [WHY] if run in (2, 4) else [] for run in (1, 2, 4, 6, 8)}
    assert reasons(bus) == lost
    assert again._lost == []


def test_runs_that_end_before_they_are_judged_are_also_invalid(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.reader.troubles = [Trouble("retention_overtook", LOST, until_ms=26_000)]
    step(watching, None, 21_000)
    watching.end()
    assert reasons(bus) == {name(1): [], name(4): [WHY]}


def test_a_smaller_share_concerns_all_runs_that_are_not_concluded(bus, context):
    watch = a_watch(begin="earliest", run_s=5, relation=PATIENT, max_records=1_000)
    watching = watched(watch, context)
    step(watching, 16_000, *range(10_000, 11_000))
    step(watching, 24_000)
    watching.end()
    share = "The share of identities counted was reduced during the run."
    assert reasons(bus) == {name(1): [share], name(2): [share], name(3): [share], name(4): []}
    assert invalidated(bus) == [(name(3), share)]


def test_a_share_that_grows_again_is_saved_with_the_position_at_once(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.watched.halve()
    watching.save()
    step(watching, 20_000)
    step(watching, 20_000 + CALM_MS)
    (told,) = [
        json.loads(fields["detail"])
        for _, _, fields in bus.events
        if fields.get("event") == WatchTrouble.name
    ]
    assert (told["kind"], told["share"], told["invalid"]) == ("sampled", 1.0, "")
    again = process.open_watching(shop(run_s=5), context)
    shares = again.watched.sampling.shares(0, told["from_ms"] + 1)
    assert shares == [(0, 0.5), (told["from_ms"], 1.0)]


def test_what_can_be_counted_again_is_published_and_only_its_own_run_is_invalid(bus, context):
    process.close(watched(shop(run_s=5), context))
    found = PublishedSince()
    gone = {"topic": "in", "pipeline": "", "stage": "", "second": 10_000}
    found.add(
        catalogue.THROUGHPUT, {"run_id": name(2), **gone, "records": 9, "bytes": 0, "aborted": 0}
    )
    context.published_since = found
    context.at_s(17)
    watching = process.open_watching(shop(run_s=5), context)
    watching.reader.records, watching.reader.end_ms = records(10_500, 11_500, 16_500), 20_000
    watching.catch_up(threading.Event(), 5)
    step(watching, 30_000)
    assert sums(bus, catalogue.THROUGHPUT, "records") == {name(1): 3, name(2): 1, name(3): 1}
    different = "After a restart the topics returned different records."
    invalid = {run_id for run_id, told in reasons(bus).items() if told}
    assert (invalid, reasons(bus)[name(2)]) == ({name(2)}, [different])
    assert invalidated(bus) == [(name(2), different)]


def test_only_counts_of_runs_that_the_killed_process_counted_in_wait_for_the_end(bus, context):
    process.close(watched(shop(run_s=5), context))
    found, known = PublishedSince(), {"topic": "in", "pipeline": "", "stage": "", "second": 10_000}
    found.add(
        catalogue.THROUGHPUT, {"run_id": name(2), **known, "records": 1, "bytes": 0, "aborted": 0}
    )
    context.published_since = found
    context.at_s(17)
    watching = process.open_watching(shop(run_s=5), context)
    for run in (2, 3):
        watching.watched.take("out", [message("out", None, b"%d" % run, 5_000 * run + 503)])
    watching.reader.records = [
        message("in", None, b"2", 10_500, offset=5_000),
        *records(10_502, 15_502),
        message("in", None, b"3", 15_500, offset=16_000),
    ]
    watching.reader.end_ms = 16_900
    watching.step()
    assert watching.behind is not None
    topics = (catalogue.THROUGHPUT, catalogue.LATENCY, catalogue.VERDICTS, catalogue.SLICES)
    told = [{run_id for of, run_id, _ in bus.events if of == topic} for topic in topics]
    assert told == [{name(1), name(3)}, {name(3)}, {name(1), name(3)}, {name(3)}]
    step(watching, 20_000)
    assert watching.behind is None
    told = [{run_id for of, run_id, _ in bus.events if of == topic} for topic in topics]
    assert told == [{name(1), name(2), name(3)}, {name(2), name(3)}] * 2
    assert sums(bus, catalogue.THROUGHPUT, "records") == {name(1): 3, name(2): 2, name(3): 3}


def test_a_run_that_a_killed_process_had_begun_and_the_next_one_passed_over_is_concluded(
    bus, context
):
    process.close(watched(shop(run_s=5), context))
    found = PublishedSince(events={(name(2), WatchBegun.name)})
    context.published_since = found
    context.at_s(17)
    watching = process.open_watching(shop(run_s=5), context)
    watching.reader.end_ms = 20_000
    watching.catch_up(threading.Event(), 5)
    step(watching, 30_000)
    assert name(2) in reasons(bus)
    assert lifecycle(bus, WatchBegun.name).count(name(2)) == 0


def test_topics_are_saved_with_the_position(bus, context):
    watching = watched(shop(), context)
    process.close(watching)
    again = process.open_watching(shop(), context)
    assert again.reader.topics == watching.reader.saved_topics()
    assert again.reader.positions == watching.reader.positions


def test_a_verdict_after_the_end_of_a_run_does_not_begin_it_again(bus, context):
    watching = watched(shop(run_s=5), context)
    step(watching, 10_100, 10_095)
    step(watching, 10_110, 9_999)  # given up after its run was closed
    step(watching, 10_200)
    step(watching, 10_300)
    assert sums(bus, catalogue.VERDICTS, "missing") == {name(1): 4, name(2): 1}
    for event in (WatchBegun.name, Concluded.name):
        assert lifecycle(bus, event).count(name(1)) == 1
    assert bus.conclusions()[name(1)] == 3
    step(watching, 30_000)
    assert set(watching.watched.counting.totals) <= {2, 5}


@pytest.mark.parametrize("is_end", [True, False])
def test_records_that_were_read_are_published_before_the_position_is_saved(bus, context, is_end):
    watching = watched(shop(run_s=5), context)
    step(watching, None, 21_000)
    if is_end:
        watching.end()
        assert bus.conclusions() == {name(1): 3, name(4): 1}
    else:
        watching.save()
        assert list(watching.watched.counting.throughput_events()) == []
    assert sums(bus, catalogue.THROUGHPUT, "records") == {name(1): 3, name(4): 1}
    assert lifecycle(bus, WatchBegun.name) == [name(1), name(4)]


def test_what_could_not_be_counted_again_is_not_published_at_the_end(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.save()
    again = process.open_watching(shop(run_s=5), context)
    step(again, None, 21_000)
    again.end()
    assert sums(bus, catalogue.THROUGHPUT, "records") == {name(1): 3}
    assert json.dumps(reasons(bus)).count("It ended before everything was recounted.") == 1


def test_change_points_are_searched_once_in_a_while_after_runs(bus, context):
    watching = watched(shop(run_s=5), context)
    step(watching, 12_000)
    assert bus.commands == [("changes", name(1))]
    step(watching, 32_000, 21_000, 26_000)
    step(watching, 33_000)
    assert len(bus.commands) == 1
    watching.pace = replace(watching.pace, search_s=0.0)
    step(watching, 34_000)
    step(watching, 34_500)
    assert bus.commands[1:] == [("changes", name(5))]
    watching.end()
    assert bus.commands[2:] == [("changes", name(6))]


LIMITED = ["p99_ms <= 3", "missing <= 1"]


def answered(watch, context, outputs, end_ms=5_100):
    """A watch that has read three inputs of its first hour, and outputs: times by input."""
    keep_watch(context.settings.data, watch)
    watching = process.open_watching(watch, context)
    watching.watched.take(
        "out", [message("out", None, b"%d" % name, ms, offset=ms) for name, ms in outputs.items()]
    )
    step(watching, end_ms, 5_000, 5_001, 5_002)
    return watching


def resumed(watch, context):
    """The next process, which has caught up."""
    watching = process.open_watching(watch, context)
    watching.reader.end_ms = 5_200
    watching.catch_up(threading.Event(), 5)
    assert watching.behind is None
    return watching


def test_each_hour_is_judged_once_by_the_thresholds_also_over_a_restart(bus, context):
    watching = answered(shop(run_s=5, thresholds=LIMITED), context, {5_000: 5_003, 5_001: 5_012})
    watching.save()
    again = resumed(watching.watch, context)
    step(again, 30_000, 21_000)
    again.save()
    step(resumed(watching.watch, context), 60_000)
    assert thresholds(bus)[name(1)] == [
        ("output.p99_ms <= 3", 11, False),
        ("output.missing <= 1", 1, True),
    ]
    assert thresholds(bus)[name(4)] == [
        ("output.p99_ms <= 3", None, False),
        ("output.missing <= 1", 1, True),
    ]
    assert lifecycle(bus, Concluded.name).count(name(1)) == 1


def test_a_watch_that_is_ended_is_judged_over_what_it_has(bus, context):
    limits = ["input.records_per_second >= 0.6", "outputs >= 2"]
    answered(shop(thresholds=limits), context, {5_000: 5_003, 5_001: 5_012}).end()
    assert thresholds(bus) == {
        "watch-w-19700101-000000-1": [
            ("input.records_per_second >= 0.6", 0.5, False),  # of six seconds
            ("output.outputs >= 2", 2, True),
        ]
    }


def test_the_end_of_a_watch_is_part_of_the_conclusion_of_its_last_run(bus, context):
    watching = watched(shop(run_s=5), context)
    step(watching, 21_000)
    watching.end()
    ended = {
        run_id: json.loads(fields["detail"])["ended"]
        for _, run_id, fields in bus.events
        if fields.get("event") == Concluded.name
    }
    assert ended == {name(1): False, name(4): True}


def test_other_thresholds_do_not_begin_a_watch_anew(bus, context):
    changed = shop(run_s=5, thresholds=LIMITED)
    watching = answered(shop(run_s=5), context, {5_000: 5_003})
    keep_watch(context.settings.data, changed)
    process.close(watching)
    step(resumed(changed, context), 30_000)
    assert thresholds(bus)[name(1)] == [
        ("output.p99_ms <= 3", 3, True),
        ("output.missing <= 1", 2, False),
    ]
    assert lifecycle(bus, WatchBegun.name).count(name(1)) == 1


class LagsOnce:
    """Answers the first request with some lags."""

    def __init__(self, *lags):
        self.troubles, self.lags = [], [*lags]

    def ask(self):
        pass

    def answer(self):
        answered, self.lags = self.lags, []
        return answered


def test_the_lag_of_a_group_is_judged_in_the_run_of_the_question_also_over_a_restart(bus, context):
    watch = shop(run_s=5, groups=["app"], thresholds=["group.lag_seconds <= 3"])
    keep_watch(context.settings.data, watch)
    watching = process.open_watching(watch, context)
    watching.lag = LagsOnce(
        ObservedGroup("app", 7_000, (PartitionLag("out", 0, "", 0, 9, behind_ms=3_500),))
    )
    step(watching, 5_100, 5_000, 5_001, 5_002)
    watching.save()
    again = process.open_watching(watch, context)
    again.lag, again.reader.end_ms = LagsOnce(), 5_200
    again.catch_up(threading.Event(), 5)
    step(again, 30_000, 21_000)
    assert thresholds(bus) == {
        name(1): [("group.lag_seconds <= 3", 3.5, False)],
        name(4): [("group.lag_seconds <= 3", None, False)],
    }


def test_the_lag_of_a_group_that_does_not_answer_any_more_is_shown_no_longer(bus, context):
    watch = shop(groups=["app", "other"])
    keep_watch(context.settings.data, watch)
    watching = process.open_watching(watch, context)
    lags = (PartitionLag("out", 0, "", 0, 9, behind_ms=3_500),)
    now = now_ms()
    watching.lag = LagsOnce(
        ObservedGroup("app", now, lags), ObservedGroup("other", now - MOST_UNKNOWN_MS - 1, lags)
    )
    step(watching, 5_100, 5_000)
    assert [group for group, *_ in watching.shown()["lags"]] == ["app"]
