"""Latency from when a pipeline was handed its inputs: for any load, any order of answers and any
reading order it equals the brute force, for each kind of stage."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import catalogue, codec
from services.evaluator.pairing import hand_overs
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from services.evaluator.pairing.hand_overs import HandOvers
from tests.unit.evaluator import gem_packs, oracle, records
from tests.unit.evaluator.records import FAR_MS, PHASES, RUN_ID, START_MS, Reading, Run
from tests.unit.evaluator.test_against_brute_force import answers, loads
from tests.unit.evaluator.test_gem_packs_against_brute_force import WINDOWS, events, outputs

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]

PARTITIONS = 2
PROPERTY = settings(
    max_examples=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def handed(draw, inputs):
    """The inputs with offsets and the times at which they were handed over, and answers to fetches:
    time, topic, partition, highest offset. Clients read again, skip, and stop before the end."""
    numbered, logs = [], {}
    for each in inputs:
        log = logs.setdefault((each.topic, getattr(each, "partition", 0)), [])
        numbered.append((each, log, len(log)))
        log.append(each)
    given_, by_log = [], {}
    for (topic, partition), log in logs.items():
        mine, now_ms = [], START_MS
        for _ in range(draw(st.integers(0, 6))):
            now_ms += draw(st.sampled_from([0, 0, 1, 30, 2_000]))
            mine.append((now_ms, topic, partition, draw(st.integers(0, len(log) - 1))))
        by_log[id(log)] = mine
        given_ += mine
    told = []
    for each, log, offset in numbered:
        times = [at_ms for at_ms, _, _, last in by_log[id(log)] if last >= offset]
        told.append(replace(each, offset=offset, handed_ms=min(times, default=None)))
    return told, sorted(given_)


def events_of_a_proxy(draw, given_):
    """The answers as a proxy publishes them, in any number of events, and a last one."""
    left, highest = [*given_], {}
    while left:
        taken, left = left[: (many := draw(st.integers(1, 4)))], left[many:]
        for topic, partition in sorted({(topic, partition) for _, topic, partition, _ in taken}):
            rises = {}
            for at_ms, *place, last in taken:
                if place == [topic, partition] and last > highest.get((topic, partition), -1):
                    highest[topic, partition] = rises[at_ms] = last
            yield fetches(topic, partition, [*rises.values()], [*rises])
    yield fetches("", -1, [], [])


def fetches(topic, partition, last_offsets, handed_ms, **changed):
    fields = {
        "run_id": RUN_ID,
        "time": START_MS,
        "producer": "proxy",
        "pipeline": "p",
        "topic": topic,
        "partition": partition,
        "until": FAR_MS,
        "first": False,
        "answers": 1,
        "records": 1,
        "bytes": 1,
        "last_offsets": last_offsets,
        "handed_ms": handed_ms,
    }
    return codec.encode("results_fetches", fields | changed)


def batch_of(*values):
    times = np.full(len(values), START_MS, np.int64)
    return RecordBatch(catalogue.FETCHES, times, [*values])


def a_run(plan):
    """A run that measures processing_time, of two input partitions each."""
    workload = plan.request.workload.model_copy(update={"processing_time": True})
    request = plan.request.model_copy(update={"workload": workload})
    offsets = dict.fromkeys(request.input_topics, (0,) * PARTITIONS)
    run = Run()
    run.evaluation = Evaluation(
        plan.model_copy(update={"request": request, "start_offsets": offsets}), PHASES
    )
    return run


def evaluated(run, inputs, said, proxied, draw):
    """Totals when inputs, outputs and events of the proxy are read in any order."""
    parts = [[("records", each)] for each in by_topic([*inputs, *said])]
    parts += [[("proxy", each) for each in proxied]]
    while parts := [part for part in parts if part]:
        kind, value = draw(st.sampled_from(parts)).pop(0)
        run.evaluation.add(batch_of(value)) if kind == "proxy" else run.add(*value)
    run.advance(FAR_MS)
    assert run.evaluation.open_in_measure() == 0
    return run.totals()


def by_topic(every):
    topics = {}
    for each in every:
        topics.setdefault((each.topic, getattr(each, "partition", 0)), []).append(each)
    return topics.values()


@given(inputs=loads(), data=st.data())
@PROPERTY
def test_of_single_records_joins_and_counted_windows(inputs, data):
    inputs, given_ = data.draw(handed(inputs))
    said = data.draw(answers(inputs))
    proxied = [*events_of_a_proxy(data.draw, given_)]
    totals = evaluated(a_run(records.a_plan()), inputs, said, proxied, data.draw)
    assert totals == oracle.judge(inputs, said)


@given(inputs=events(), queries=st.sampled_from(WINDOWS), data=st.data())
@PROPERTY
def test_of_windows_closed_by_event_time_and_pairs_in_them(inputs, queries, data):
    inputs, given_ = data.draw(handed(inputs))
    said = data.draw(outputs(inputs, queries))
    proxied = [*events_of_a_proxy(data.draw, given_)]
    plan = gem_packs.a_plan(domain=queries.domain())
    totals = evaluated(a_run(plan), inputs, said, proxied, data.draw)
    assert totals == gem_packs.judge(inputs, said, queries)


def a_parse(run, **changed):
    reading = Reading("flow", START_MS + 2_000, 1, offset=0)
    output = records.Output("parse", START_MS + 2_300, records.parsed(reading) | changed)
    run.add(reading, output)
    return run


def latencies(run):
    return {key[1:]: n for key, n in run.totals().latencies.items() if key[1] == "processing_time"}


def test_nothing_is_judged_before_the_hand_overs_are_known():
    run = a_parse(a_run(records.a_plan(("parse",))))
    run.advance(START_MS + 2_500)
    assert not run.totals().verdicts
    assert run.evaluation.open_in_measure() == 2  # the expected output, and the one that waits
    flow = records.TRAFFIC.topics[0]
    at_ms = START_MS + 2_100
    run.evaluation.add(batch_of(fetches(flow, 0, [0], [at_ms], until=START_MS + 2_400)))
    run.advance(START_MS + 2_500)
    assert latencies(run) == {("processing_time", "measure", 200): 1}
    assert run.evaluation.open_in_measure() == 0


@pytest.mark.parametrize("changed", [{"run_id": "other"}, {"pipeline": "q"}])
def test_events_of_other_runs_and_pipelines_are_not_of_this_one(changed):
    run = a_parse(a_run(records.a_plan(("parse",))))
    flow = records.TRAFFIC.topics[0]
    run.evaluation.add(
        batch_of(fetches(flow, 0, [0], [START_MS], **changed), fetches("", -1, [], []))
    )
    run.advance(FAR_MS)
    assert latencies(run) == {}
    assert run.evaluation.not_handed == 1


def test_a_wrong_output_may_be_published_before_an_input_that_it_lacks():
    run = a_parse(a_run(records.a_plan(("parse",))), accuracy_percent=1)
    run.evaluation.add(batch_of(fetches("", -1, [], [])))
    run.advance(FAR_MS)
    assert (latencies(run), run.evaluation.not_handed) == ({}, 0)
    assert run.totals().verdicts == {("parse", "measure", "wrong"): 1}


def test_what_a_proxy_did_not_publish_before_it_ended_is_unknown():
    times = HandOvers({("t", 0): 0})
    event = {"until": 0, "topic": "t", "partition": 0}
    for first, last_offsets, after_ms in (
        (True, [3, 5], 1),
        (True, [8, 9], 100),
        (False, [12], 200),
    ):
        handed_ms = [START_MS + after_ms + number for number in range(len(last_offsets))]
        times.add(event | {"first": first, "last_offsets": last_offsets, "handed_ms": handed_ms})
    known = times.of(np.array([[0, 3, 4, 5, 6, 8, 9, 12, 13]]))
    unknown = hand_overs.UNKNOWN
    after = [each - START_MS if each != unknown else unknown for each in known.tolist()]
    assert after == [1, 1, 2, 2, unknown, unknown, 101, 200, unknown]


def test_the_oldest_times_are_forgotten_and_then_unknown(monkeypatch):
    monkeypatch.setattr(hand_overs, "MOST_TIMES", 10)
    times = HandOvers({("t", 0): 0})
    for number in range(0, 40, 4):
        offsets = [*range(number, number + 4)]
        handed_ms = [START_MS + each for each in offsets]
        times.add(
            {
                "until": 0,
                "topic": "t",
                "partition": 0,
                "first": False,
                "last_offsets": offsets,
                "handed_ms": handed_ms,
            }
        )
    known = times.of(np.arange(40)[None, :])
    assert known[-1] == START_MS + 39
    assert (known[:20] == hand_overs.UNKNOWN).all()
    kept = known != hand_overs.UNKNOWN
    assert kept.sum() >= 4
    assert (known[kept] == START_MS + np.arange(40)[kept]).all()
