"""gem_packs with any load, disorder, loss, copies and reading order, and windows closed only by
silence: the totals equal those of the brute force."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.runtime.counting import CountReconciler
from tests.unit.evaluator.gem_packs import (
    GEM_PACKS,
    IN_SECONDS,
    Event,
    Queries,
    Said,
    Span,
    a_run,
    expectations,
    judge,
)
from tests.unit.evaluator.records import (
    DEADLINE_MS,
    FAR_MS,
    GIVE_UP_MS,
    MEASURE_MS,
    START_MS,
    Totals,
)

pytestmark = pytest.mark.unit

STEPS_MS = (0, 0, 1, 40, 300, 300, 900, DEADLINE_MS, DEADLINE_MS + 1, 2_500)
DELAYS_MS = (
    -9_000,
    -DEADLINE_MS - 1,
    -DEADLINE_MS,
    -1,
    0,
    40,
    DEADLINE_MS,
    DEADLINE_MS + 1,
    GIVE_UP_MS + 1,
    9_000,
)


# Event times are also so much later, so that windows of both lengths close by event time.
LATER_MS = (0, 0, 0, 0, 5_000, 9_000)
WINDOWS = (
    Queries(),
    IN_SECONDS,
    Queries(Span(8, 4), Span(2, 1)),  # shorter than the windows that they read
    Queries(Span(3, 1), Span(4, 4)),
)


@st.composite
def events(draw):
    """Purchases and ads, with LogAppendTimes that never decrease within a partition."""
    found = []
    appended_ms = dict.fromkeys(((i, p) for i in ("purchases", "ads") for p in (0, 1)), START_MS)
    for sequence in range(draw(st.integers(2, 24))):
        log = draw(st.sampled_from(sorted(appended_ms)))
        for other in appended_ms:
            appended_ms[other] += draw(st.sampled_from(STEPS_MS)) if other == log else 0
        one = Event(
            log[0],
            appended_ms[log],
            draw(st.sampled_from((0.25, 20.0, 99.75, 100.0, 100.25, 150.0))),
            sequence,
            START_MS + 500 * draw(st.integers(0, 6)) + draw(st.sampled_from(LATER_MS)),
            START_MS * 1_000 + draw(st.integers(0, 6_500_000)),
            draw(st.sampled_from(("u1", "u1", "u2"))),
            draw(st.sampled_from(("p1", "p1", "p2"))),
            draw(st.sampled_from(("g000", "g000", "g001", "unknown"))),
            log[1],
        )
        copies = draw(st.sampled_from((1, 1, 1, 1, 2)))
        for _copy in range(copies):
            found.append(replace(one, appended_ms=appended_ms[log]))
            appended_ms[log] += draw(st.sampled_from(STEPS_MS)) if copies > 1 else 0
    return found


@st.composite
def outputs(draw, inputs, queries):
    """Outputs of a pipeline that loses, repeats, corrupts, delays, publishes partial results, and
    invents outputs."""
    found = []
    times = sorted({one.appended_ms for one in inputs})
    until_ms = draw(st.sampled_from(times))
    partial = expectations([one for one in inputs if one.appended_ms <= until_ms], queries)
    for stage, due in expectations(inputs, queries).items():
        for key, expected in due.items():
            fate = draw(st.sampled_from(["good", "good", "good", "lost", "partial", "wild"]))
            from_ms = draw(st.sampled_from((expected.latest_ms, expected.due_ms)))
            content = expected.content
            if fate == "partial" and key in partial[stage]:
                content = partial[stage][key].content
            partition = draw(st.sampled_from((0, 0, 0, 1)))
            for _copy in range(0 if fate == "lost" else draw(st.sampled_from((1, 1, 1, 2, 5)))):
                out_ms = from_ms + draw(st.sampled_from(DELAYS_MS))
                if stage == "ingest":
                    found.append(Said(stage, out_ms, None, content, partition))
                    continue
                fields = spoilt(draw, content) if fate == "wild" else content
                found.append(Said(stage, out_ms, fields, b"", partition))
    return sorted(found, key=lambda one: one.appended_ms)


def spoilt(draw, content):
    """Changed columns, of the content or of the identity."""
    name = draw(st.sampled_from([name for name in content if name != "run_id"]))
    was = content[name]
    if isinstance(was, str):
        return content | {name: draw(st.sampled_from(["p1", "g001", "Austria", "nowhere"]))}
    return content | {name: was + draw(st.sampled_from([-1_000, -4_000, -1, 1, 500, 1_000]))}


def logs_of(records):
    """Records by topic and partition, ordered by offset."""
    logs = {}
    for one in records:
        logs.setdefault((one.topic, one.partition), []).append(one)
    return logs


def frontier(logs, prefix):
    """The time before which everything appended to these topics has been read."""
    left = [
        log[0].appended_ms
        for (topic, _), log in logs.items()
        if topic[: len(prefix)] == prefix and log
    ]
    return min(left, default=FAR_MS)


def events_of(records, data, domain, batches=None):
    """Events of a process that reads all partitions in any order and in any batches, with correct
    frontiers, or all at once, without data. batches: how many it reads before it is killed."""
    logs = {log: [*every] for log, every in logs_of(records).items()}
    run, published = a_run(domain=domain), []
    while any(logs.values()) and batches != 0:
        log = sorted(log for log, left in logs.items() if left)[0]
        taken = len(logs[log])
        if data is not None:
            log = data.draw(st.sampled_from(sorted(log for log, left in logs.items() if left)))
            taken = data.draw(st.integers(1, len(logs[log])))
        run.add(*logs[log][:taken])
        del logs[log][:taken]
        if data is not None and data.draw(st.booleans()):
            run.advance(frontier(logs, "gem_packs"), frontier(logs, "output"))
            published += run.evaluation.take_events()
        batches = None if batches is None else batches - 1
    if batches is None:
        run.advance(FAR_MS)
        assert run.evaluation.open_in_measure() == 0
        published += run.evaluation.take_events()
    return published


def evaluate(records, data, domain):
    """Totals of one process, or of one that takes over from one that was killed."""
    published = events_of(records, data, domain, data.draw(st.integers(0, 6))) if data else []
    owed = CountReconciler()
    for event in published:
        owed.deduct(*event)
    for event in events_of(records, data, domain):
        owed.count(*event)
    totals = Totals()
    totals.count_events([*published, *owed.events()])
    return totals.without_nothing()


PROPERTY = settings(
    max_examples=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(inputs=events(), queries=st.sampled_from(WINDOWS), data=st.data())
@PROPERTY
def test_live_restarted_and_evaluated_again_are_the_brute_force(inputs, queries, data):
    said, domain = data.draw(outputs(inputs, queries)), queries.domain()
    totals = evaluate([*inputs, *said], data, domain)
    assert totals == judge(inputs, said, queries) == evaluate([*inputs, *said], None, domain)


def a_load(count):
    """Purchases and ads of 20 users, 100 records of each a second, with the outputs of all
    stages."""
    inputs = [
        Event(
            name,
            START_MS + 10 * number + place,
            float(1 + number % 200),
            2 * number + place,
            START_MS + 10 * number,
            MEASURE_MS * 1_000,
            f"u{number % 20}",
            f"p{number % 5}",
            f"g{number % 3:03d}",
        )
        for number in range(count)
        for place, name in enumerate(("purchases", "ads"))
    ]
    said = []
    for stage, due in expectations(inputs).items():
        for expected in due.values():
            fields, raw = expected.content, b""
            if stage == "ingest":
                fields, raw = None, expected.content
            said.append(Said(stage, expected.due_ms + 5, fields, raw))
    return inputs, sorted(said, key=lambda one: one.appended_ms)


@pytest.mark.parametrize("stage", GEM_PACKS.stage_names)
def test_every_thousandth_output_that_is_lost_is_missing_and_nothing_else(stage):
    inputs, said = a_load(600)
    mine = [one for one in said if one.stage == stage]
    step = min(1_000, max(2, len(mine) // 2))
    kept = [one for number, one in enumerate(mine) if number % step != step - 1]
    run = a_run(stage)
    run.add(*inputs, *kept)
    run.advance(FAR_MS)
    found = {verdict: count for (_, _, verdict), count in run.totals().verdicts.items()}
    assert found == {"exact": len(kept), "missing": len(mine) - len(kept)}
    assert len(mine) > len(kept)


def test_one_lost_input_in_a_thousand_is_told_exactly():
    inputs, _ = a_load(500)
    lost = [inputs[998]]  # a purchase that the pipeline never receives
    passed = [one for one in inputs if one not in lost]
    said = []
    for stage, due in expectations(passed).items():
        for expected in due.values():
            fields, raw = expected.content, b""
            if stage == "ingest":
                fields, raw = None, expected.content
            said.append(Said(stage, expected.due_ms + 5, fields, raw))
    said.sort(key=lambda one: one.appended_ms)
    run = a_run()
    run.add(*inputs, *said)
    run.advance(FAR_MS)
    found = {}
    for (name, _, verdict), count in run.totals().verdicts.items():
        if verdict != "exact":
            found[name, verdict] = count
    assert run.totals() == judge(inputs, said)
    for stage in ("ingest", "parse", "enriched"):
        assert found[stage, "missing"] == 1
    assert found["revenue", "wrong"] == 2  # both windows that contain the purchase
