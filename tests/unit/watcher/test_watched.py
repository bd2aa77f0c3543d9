"""A watch without Kafka: from records to events, in any reading order."""

import json
from collections import Counter

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import catalogue
from services.watcher.records import DUPLICATE, EXACT, LATE, LOST, NONE_MS, UNEXPECTED, hashes
from services.watcher.runs import WatchRuns
from services.watcher.sampling import WHOLE
from services.watcher.watched import AHEAD, CLOSED, Watched
from tests.unit.watcher.one_by_one import verdicts_of
from tests.unit.watcher.records import a_watch, message

pytestmark = pytest.mark.unit

RELATION = {"deadline_ms": 10, "give_up_ms": 20, "remember_ms": 50}
NAMES = {EXACT: "exact", LATE: "late", DUPLICATE: "duplicate", UNEXPECTED: "unexpected"}


def records(topic, pairs):
    return [
        message(topic, None, str(name).encode(), ms, offset=offset)
        for offset, (name, ms) in enumerate(sorted(pairs, key=lambda one: one[1]))
    ]


def totals(events):
    """Latencies and verdicts over all runs."""
    latencies, verdicts = Counter(), Counter()
    for event in events:
        if event.topic == catalogue.LATENCY:
            fields = event.fields
            latencies.update(dict(zip(fields["latencies_ms"], fields["counts"], strict=True)))
        elif event.topic == catalogue.VERDICTS:
            for name in ("exact", "late", "missing", "duplicate", "unexpected"):
                verdicts[name] += event.fields[name]
    return +latencies, +verdicts


def expected(found):
    latencies, verdicts = Counter(), Counter()
    for (verdict, input_ms, output_ms), count in found.items():
        verdicts["missing" if verdict == LOST else NAMES[verdict]] += count
        if verdict in (EXACT, LATE):
            latencies[output_ms - input_ms] += count
    return latencies, verdicts


some = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 200)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(some, some, st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=12))
def test_counts_follow_from_the_topics_and_not_from_how_they_are_read(inputs, outputs, reads):
    watch = a_watch(begin="earliest", relation=RELATION)
    watched, events = Watched(watch, 0), []
    left = {"in": records("in", inputs), "out": records("out", outputs)}
    read_ms = {"in": -1, "out": -1}

    def read(topic, count):
        mine, left[topic] = left[topic][:count], left[topic][count:]
        if mine:
            ((_, _, read_ms[topic], _),) = watched.take(topic, mine)
        events.extend(watched.advance(min(read_ms.values())))

    for is_input, count in (*reads, (True, 99), (False, 99)):
        read("in" if is_input else "out", count)
    events += watched.advance(1_000)
    assert totals(events) == expected(verdicts_of(inputs, outputs, watch.relation))


def test_a_sample_is_exact_on_the_identities_that_it_has():
    watch = a_watch(begin="earliest", relation=RELATION, share=0.25)
    watched = Watched(watch, 0)
    inputs = [(number, 1 + number % 150) for number in range(2_000)]
    outputs = [(number, ms + 3) for number, ms in inputs if number % 7]
    watched.take("in", records("in", inputs))
    watched.take("out", records("out", outputs))
    mine = {
        number for number in range(2_000) if hashes([str(number).encode()]).tolist()[0] < WHOLE // 4
    }
    assert 400 < len(mine) < 600
    kept = [[one for one in side if one[0] in mine] for side in (inputs, outputs)]
    found = totals(list(watched.advance(1_000)))
    assert found == expected(verdicts_of(*kept, watch.relation))


def test_a_join_has_the_time_of_the_last_of_its_inputs():
    watch = a_watch(
        inputs=[{"topic": "in"}, {"topic": "also"}],
        relation={"kind": "join", **RELATION},
        begin="earliest",
    )
    watched = Watched(watch, 0)
    watched.take("in", records("in", [(1, 100), (2, 100), (3, 100)]))
    watched.take("also", records("also", [(1, 105), (2, 90)]))
    events = list(watched.advance(101))
    watched.take("out", records("out", [(1, 107), (2, 104)]))
    latencies, verdicts = totals([*events, *watched.advance(1_000)])
    assert (latencies, verdicts) == ({2: 1, 4: 1}, {"exact": 2})


@pytest.mark.parametrize(("inputs", "latency_ms"), [(0, 2), (2, 9)])
def test_a_join_has_one_input_of_each_topic_unless_their_number_is_given(inputs, latency_ms):
    watch = a_watch(
        inputs=[{"topic": "in"}, {"topic": "also"}],
        relation={"kind": "join", "inputs": inputs, **RELATION},
        begin="earliest",
    )
    watched = Watched(watch, 0)
    watched.take("out", records("out", [(1, 117)]))
    watched.take("in", records("in", [(1, 107), (1, 108)]))
    watched.take("also", records("also", [(1, 115)]))
    assert totals(list(watched.advance(118))) == ({latency_ms: 1}, {"exact": 1})


def a_reading(key, ms, event_ms):
    value = json.dumps({"at": event_ms}).encode()
    return message("in", value, key, ms)


def a_window(key, ms, begin_ms):
    begin_s = begin_ms // 1000
    start, end = f"1970-01-01 00:00:{begin_s:02}", f"1970-01-01T00:00:{begin_s + 5:02}Z"
    return message("out", json.dumps({"window": {"start": start, "end": end}}).encode(), key, ms)


def test_a_window_has_the_inputs_of_its_key_whose_event_time_is_in_it():
    watch = a_watch(
        inputs=[{"topic": "in", "format": "json", "time": "value.at"}],
        outputs=[
            {
                "topic": "out",
                "format": "json",
                "start": "value.window.start",
                "end": "value.window.end",
                "time_format": "iso",
            }
        ],
        relation={"kind": "window", **RELATION},
        begin="earliest",
    )
    first, second = Watched(watch, 0), Watched(watch, 0)
    readings = [(b"a", 100, 5_000), (b"b", 103, 9_000), (b"a", 104, 9_999), (b"a", 106, 10_000)]
    first.take("in", [a_reading(*one) for one in readings])
    first.take("out", [a_window(b"a", 108, 5_000)])
    before = list(first.advance(109))
    arrays, rest = first.saved()
    second.restore(arrays, json.loads(json.dumps(rest)))
    second.take("out", [a_window(b"b", 112, 5_000), a_window(b"b", 113, 10_000)])
    second.take("out", [message("out", b"{}", b"a", 114)])
    found = totals([*before, *second.advance(1_000)])
    assert found == ({4: 1, 9: 1}, {"exact": 2, "unexpected": 1, "missing": 1})
    assert [reason for _, reason in second.refused] == ["it has no field window.start"]


def test_what_came_before_the_watch_began_is_known_and_not_judged():
    watch = a_watch(relation=RELATION)
    watched = Watched(watch, 100)
    watched.take("in", records("in", [(1, 95), (2, 98), (3, 101)]))
    watched.take("out", records("out", [(1, 103), (3, 104), (4, 99)]))
    events = list(watched.advance(1_000))
    assert totals(events) == ({3: 1}, {"exact": 1})
    read = [e.fields for e in events if e.topic == catalogue.THROUGHPUT]
    assert [(one["topic"], one["records"]) for one in read] == [("in", 1), ("out", 2)]


def test_latency_is_told_apart_by_partition_and_by_a_field_up_to_a_bound():
    topics = {
        "inputs": [{"topic": "in"}],
        "outputs": [{"topic": "out", "by": "header.land"}],
    }
    watched = Watched(a_watch(**topics, begin="earliest", relation=RELATION), 0)
    watched.take("in", records("in", [(number, 100) for number in range(210)]))
    outputs = [
        message(
            "out",
            None,
            str(number).encode(),
            101 + number % 2,
            partition=number % 2,
            offset=number,
            headers=[("land", b"l%d" % number)] if number else None,
        )
        for number in range(210)
    ]
    for number in (0, 1):
        watched.take("out", outputs[number::2])
    list(watched.advance(1_000))
    found = {
        (one.fields["dimension"], one.fields["value"]): dict(
            zip(one.fields["latencies_ms"], one.fields["counts"], strict=True)
        )
        for one in watched.counting.slices.take()
    }
    assert found["partition", "out-0"] == {1: 105}
    assert found["partition", "out-1"] == {2: 105}
    assert found["header.land", "l17"] == {2: 1}
    assert len([name for name in found if name[0] == "header.land"]) == 201
    assert sum(found["header.land", "(others)"].values()) == 9
    assert not list(watched.counting.slices.take())


def test_offenders_say_where_they_are():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0)
    watched.take("in", [message("in", None, b"a", 100, partition=3, offset=17)])
    watched.take("out", [message("out", None, b"b", 105, partition=1, offset=9)])
    events = [one for one in watched.advance(1_000) if one.topic == catalogue.VERDICTS]
    samples = [json.loads(text) for one in events for text in one.fields["samples"]]
    assert samples == [
        {"verdict": "unexpected", "topic": "out", "partition": 1, "offset": 9, "output_ms": 105},
        {"verdict": "missing", "topic": "in", "partition": 3, "offset": 17, "input_ms": 100},
    ]


def test_outputs_that_wait_for_their_inputs_count_for_the_memory():
    relation = {"deadline_ms": 5_000, "give_up_ms": 10_000, "remember_ms": 10_000}
    watched = Watched(a_watch(begin="earliest", relation=relation, max_records=1_000), 0)
    watched.take("out", records("out", [(number, 100) for number in range(1_001)]))
    list(watched.advance(101))
    assert watched.is_full
    watched.halve()
    assert not watched.is_full


def test_a_full_memory_counts_half_of_the_identities_from_then_on():
    relation = {"deadline_ms": 10, "give_up_ms": 10_000, "remember_ms": 10_000}
    watched = Watched(a_watch(begin="earliest", relation=relation, max_records=1_000), 0)
    inputs = [(number, 100) for number in range(1_001)]
    watched.take("in", records("in", inputs))
    list(watched.advance(101))
    assert watched.is_full
    watched.halve()
    assert not watched.is_full
    assert watched.sampling.shares(0, 1) == [(0, 0.5)]
    watched.take("out", records("out", [(number, 104) for number in range(1_001)]))
    _, verdicts = totals(list(watched.advance(30_000)))
    kept = sum(hashes([str(n).encode()]).tolist()[0] < WHOLE // 2 for n in range(1_001))
    assert verdicts == {"exact": kept}


def test_a_watch_goes_on_from_what_was_saved():
    watch = a_watch(begin="earliest", relation=RELATION)
    first, second = Watched(watch, 0), Watched(watch, 0)
    inputs, outputs = [(1, 100), (2, 105), (3, 130)], [(1, 103), (2, 131), (9, 132)]
    first.take("in", records("in", inputs))
    first.take("out", records("out", outputs[:1]))
    before = list(first.advance(104))
    arrays, rest = first.saved()
    second.restore(arrays, json.loads(json.dumps(rest)))
    after = []
    for one in (first, second):
        one.take("out", records("out", outputs[1:]))
        after.append(totals([*before, *one.advance(1_000)]))
    assert after[0] == after[1] == expected(verdicts_of(inputs, outputs, watch.relation))


def test_a_record_whose_time_is_far_ahead_is_refused_and_holds_nothing_up():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0, clock=lambda: 5_000)
    microseconds = 1_700_000_000_000_000
    mine = [(1, 4_000), (2, 5_000 + 3_600_000), (3, 5_001 + 3_600_000), (4, microseconds)]
    assert watched.take("in", records("in", mine)) == [(("in", 0), 3, 3_605_000, 3_605_000)]
    assert watched.take("in", records("in", mine[3:])) == [(("in", 0), 0, NONE_MS, NONE_MS)]
    ((_, reason), first), *others = watched.refused.items()
    assert (reason, first.offset, first.count, others) == (AHEAD, 2, 3, [])
    assert {run: one.refused for run, one in watched.counting.totals.items()} == {0: 3, 1: 0}
    read = [e.fields for e in watched.advance(9_000) if e.topic == catalogue.THROUGHPUT]
    assert [(one["second"], one["records"]) for one in read] == [(4_000, 1), (3_605_000, 1)]


def test_the_clock_of_a_producer_that_is_ahead_says_nothing_of_other_records():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0, clock=lambda: 5_000)
    kind = TIMESTAMP_CREATE_TIME
    mine = [
        message("in", None, b"%d" % ms, ms, offset=offset, kind=kind)
        for offset, ms in enumerate([4_000, 5_000, 5_001, 9_000])
    ]
    assert watched.take("in", mine) == [(("in", 0), 3, 5_000, 9_000)]
    assert watched.take("in", mine[2:]) == [(("in", 0), 3, NONE_MS, 9_000)]
    assert watched.unread == 6
    assert not watched.refused


def test_a_run_with_all_that_topics_have_counts_from_the_second_of_the_earliest_record_on():
    watch = a_watch(begin="earliest", relation=RELATION, run_s=100_000)
    watched = Watched(watch, 0, clock=lambda: 90_000)
    list(watched.advance(2_000))
    assert watched.from_ms == 2_000
    watched.take("in", records("in", [(1, 59_000)]))
    watched.take("out", records("out", [(1, 3_500)]))
    list(watched.advance(90_000))
    assert watched.from_ms == 3_000
    arrays, rest = watched.saved()
    again = Watched(watched.watch, 0)
    again.restore(arrays, json.loads(json.dumps(rest)))
    assert again.from_ms == 3_000


def test_a_run_that_was_concluded_long_ago_stays_as_it_was():
    watch = a_watch(begin="earliest", relation=RELATION, run_s=60)
    watched, runs = Watched(watch, 0, clock=lambda: 130_000), WatchRuns(watch, {})
    list(runs.begin(0))
    watched.take("in", records("in", [(1, 59_000)]))
    list(watched.advance(130_000))
    assert runs.due(130_000) == [0]
    list(runs.conclude(0, watched.counting.totals[0], (0, 5_000), {}))
    assert runs.forget(watched.counting, 60_100) == NONE_MS
    watched.closed_ms = runs.forget(watched.counting, 60_101)
    assert watched.closed_ms == 60_000
    watched.take("in", records("in", [(2, 59_999), (3, 60_000)]))
    assert {event.run for event in watched.advance(140_000)} == {1}
    assert [(reason, one.count) for (_, reason), one in watched.refused.items()] == [(CLOSED, 1)]
    assert watched.counting.totals[2].refused == 1
    arrays, rest = watched.saved()
    again = Watched(watch, 0)
    again.restore(arrays, json.loads(json.dumps(rest)))
    assert again.closed_ms == 60_000


def test_refused_records_count_in_the_runs_of_their_own_times():
    watch = a_watch(begin="earliest", relation=RELATION, run_s=5)
    watched = Watched(watch, 5_000)
    times = (4_980, 5_500, 5_600, 10_500)
    bad = [message("in", b"v", None, ms, offset=n) for n, ms in enumerate(times)]
    watched.take("in", [*bad, message("in", b"v", b"a", 15_500, offset=4)])
    assert {run: one.refused for run, one in watched.counting.totals.items() if one.refused} == {
        1: 2,
        2: 1,
    }


def test_reasons_have_a_bound_over_all_that_is_read():
    inputs = [{"topic": "in", "format": "json", "identity": ["value.id"]}]
    watched = Watched(a_watch(begin="earliest", relation=RELATION, inputs=inputs), 0)
    for number in range(100):
        watched.take("in", [message("in", b"[" + b"1," * number, b"k", 100, offset=number)])
        watched.take("in", [message("in", b"{}", b"k", 100, offset=number)])
    assert len(watched.refused) == 21
    assert watched.refused["in", "other reasons"].count == 100 - 19
    assert watched.refused["in", "it has no field id"].count == 100


def test_a_topic_whose_timestamps_changed_their_type_has_only_the_new_one_later():
    watch = a_watch(begin="earliest", relation=RELATION)
    watched = Watched(watch, 0, clock=lambda: 200_000)
    watched.take("in", [message("in", b"v", b"a", 50_000, kind=TIMESTAMP_CREATE_TIME)])
    watched.take("in", [message("in", b"v", b"b", 70_000, offset=1)])
    arrays, rest = watched.saved()
    again = Watched(watch, 0)
    again.restore(arrays, json.loads(json.dumps(rest)))
    for one in (watched, again):
        assert one.timestamp_types(0) == {"in": {"CreateTime", "LogAppendTime"}}
        assert one.timestamp_types(60_000) == {"in": {"LogAppendTime"}}


def test_an_output_has_the_latency_until_it_is_visible_if_the_broker_stamped_it():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 0)
    watched.take("in", records("in", [("a", 100), ("b", 100), ("c", 100)]))
    outputs = records("out", [("a", 103), ("b", 104)])
    outputs.append(message("out", None, b"c", 105, offset=2, kind=TIMESTAMP_CREATE_TIME))
    watched.take("out", outputs, np.array([900, NONE_MS, 900]))
    saved = watched.saved()
    watched = Watched(watched.watch, 0)
    watched.restore(*saved)
    events = [event for event in watched.advance(1_000) if event.topic == catalogue.LATENCY]
    latencies = {event.fields["definition"]: event.fields["latencies_ms"] for event in events}
    assert latencies == {"latest": [3, 4, 5], "visible": [800]}
    assert {event.fields["second"] for event in events} == {0}


def test_aborted_records_count_from_the_first_whole_second_on():
    watched = Watched(a_watch(begin="earliest", relation=RELATION), 1_500)
    watched.count_aborted("out", {1_000: 5, 2_000: 7})
    (event,) = watched.advance(9_000)
    assert event.fields == {
        **{"topic": "out", "pipeline": "w", "stage": "output"},
        **{"second": 2_000, "records": 0, "bytes": 0, "aborted": 7},
    }
