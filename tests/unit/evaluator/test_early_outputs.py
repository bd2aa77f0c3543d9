"""Outputs of a window closed by event time are judged against all its records, however early they
were appended. Other outputs may precede their latest input by at most the deadline."""

from collections import Counter

import pytest

from schemas import catalogue
from services.evaluator.columnar.columns import StateLimits
from services.runtime.counting import CountReconciler
from tests.unit.evaluator.gem_packs import Event, Said, a_run
from tests.unit.evaluator.records import (
    DEADLINE_MS,
    FAR_MS,
    MEASURE_MS,
    RUN_ID,
    START_MS,
    Totals,
    samples_of,
)

pytestmark = pytest.mark.unit

FIRST_MS, LAST_MS = MEASURE_MS, MEASURE_MS + 3_000
# Purchases of p1 for 10 and 5, of p3 in between, and of p2 whose event time closes the window.
INPUTS = (
    Event("purchases", FIRST_MS, 10.0, 0),
    *(Event("purchases", FIRST_MS + 900 * n, 1.0, 10 + n, pack="p3") for n in (1, 2, 3)),
    Event("purchases", LAST_MS, 5.0, 1, START_MS + 3_000),
    Event("purchases", LAST_MS + 500, 1.0, 2, START_MS + 20_000, pack="p2"),
)


def revenue(at_ms, total=15.0):
    """An output of the window that begins at START_MS."""
    span = {"window_start": START_MS, "window_end": START_MS + 8_000}
    return Said("revenue", at_ms, {"run_id": RUN_ID, "gem_pack_id": "p1", **span, "revenue": total})


def verdicts(totals):
    """Verdicts, except `missing` of the windows without an output."""
    found = Counter()
    for (_stage, _phase, verdict), count in totals.verdicts.items():
        found[verdict] += count
    del found["missing"]
    return dict(found)


def latencies(totals):
    found = [key for key in totals.latencies if key[1] == "latest"]
    return sorted(latency_ms for _stage, _definition, _phase, latency_ms in found)


def judged_step_by_step(*outputs):
    """Live: every record by itself, with the frontiers just behind it."""
    run = a_run("revenue")
    for one in sorted((*INPUTS, *outputs), key=lambda each: each.appended_ms):
        run.add(one)
        run.read_all()
        run.totals()
    run.advance(FAR_MS)
    return run.totals()


def judged_at_once(*outputs):
    run = a_run("revenue")
    run.add(*INPUTS, *outputs)
    run.advance(FAR_MS)
    return run.totals()


def judged_by_two(killed_ms, *outputs):
    """A process that is killed after it published all verdicts up to a time, and one that takes
    over."""
    killed = a_run("revenue")
    every = sorted((*INPUTS, *outputs), key=lambda each: each.appended_ms)
    killed.add(*(one for one in every if one.appended_ms < killed_ms))
    killed.advance(killed_ms)
    published = list(killed.evaluation.take_events())
    owed = CountReconciler()
    for event in published:
        owed.deduct(*event)
    taking_over = a_run("revenue")
    taking_over.add(*every)
    taking_over.advance(FAR_MS)
    for event in taking_over.evaluation.take_events():
        owed.count(*event)
    totals = Totals()
    totals.count_events([*published, *owed.events()])
    return totals.without_nothing()


@pytest.mark.parametrize(
    "early_ms",
    [
        pytest.param(1, id="by a millisecond"),
        pytest.param(DEADLINE_MS - 1, id="by a millisecond less than the deadline"),
        pytest.param(DEADLINE_MS, id="by the deadline"),
        pytest.param(DEADLINE_MS + 1, id="by a millisecond more than the deadline"),
        pytest.param(2_900, id="before most records of its window"),
        pytest.param(3_000, id="with the first record of its window"),
        pytest.param(4_000, id="before any record of its window"),
        pytest.param(4_500, id="long before any record of its window"),
    ],
)
def test_an_output_of_a_closed_window_is_exact_however_early_it_is(early_ms):
    output = revenue(LAST_MS - early_ms)
    live = judged_step_by_step(output)
    assert verdicts(live) == {"exact": 1}
    assert latencies(live) == [-early_ms]
    assert live == judged_at_once(output)
    for killed_ms in (LAST_MS - early_ms + 1, LAST_MS - 1, LAST_MS + 1, LAST_MS + 5_000):
        assert live == judged_by_two(killed_ms, output)


@pytest.mark.parametrize("early_ms", [DEADLINE_MS, DEADLINE_MS + 1, 4_500])
def test_an_early_result_of_part_of_the_records_is_wrong_and_the_whole_one_repeats_it(early_ms):
    outputs = revenue(LAST_MS - early_ms, 10.0), revenue(LAST_MS + 600)
    live = judged_step_by_step(*outputs)
    assert verdicts(live) == {"wrong": 1, "duplicate": 1}
    assert latencies(live) == [-early_ms]
    assert live == judged_at_once(*outputs)
    assert live == judged_by_two(LAST_MS - 100, *outputs)


def test_of_several_early_outputs_the_first_in_append_order_counts():
    times_ms = (LAST_MS - 4_500, LAST_MS - 4_500, LAST_MS - 4_000, LAST_MS - 1_001, LAST_MS + 1)
    outputs = [revenue(at_ms) for at_ms in times_ms]
    live = judged_step_by_step(*outputs)
    assert verdicts(live) == {"exact": 1, "duplicate": 4}
    assert latencies(live) == [-4_500]
    assert live == judged_at_once(*outputs)
    assert live == judged_by_two(LAST_MS - 2_000, *outputs)


def test_an_output_without_records_is_unexpected_until_they_come():
    run, output = a_run("revenue"), revenue(FIRST_MS - 2_000)
    run.add(output)
    run.advance(FIRST_MS - 500)
    assert verdicts(run.totals()) == {"unexpected": 1}
    assert run.evaluation.open_in_measure() == 0
    run.add(*INPUTS)
    run.advance(FAR_MS)
    assert verdicts(run.totals()) == {"exact": 1}


def test_an_output_whose_window_gets_no_record_in_time_stays_unexpected():
    run, output = a_run("revenue"), revenue(FIRST_MS - 2_000)
    late = INPUTS[-1].appended_ms + 1_001  # a millisecond after the grace
    run.add(output, *INPUTS[-1:], Event("purchases", late, 15.0, 3))
    run.advance(FAR_MS)
    assert verdicts(run.totals()) == {"unexpected": 1}


def test_no_more_early_outputs_are_remembered_than_there_is_room_for():
    run = a_run("revenue", limits=StateLimits(early_outputs=2))
    run.add(*(revenue(FIRST_MS - 2_000 + n) for n in range(3)))
    run.advance(FIRST_MS - 500)
    run.add(*INPUTS)
    run.advance(FAR_MS)
    assert verdicts(run.totals()) == {"exact": 1, "duplicate": 1, "unexpected": 1}


def test_an_early_output_of_a_single_record_is_unexpected_beyond_the_deadline():
    for early_ms, verdict in ((DEADLINE_MS, "exact"), (DEADLINE_MS + 1, "unexpected")):
        run, one = a_run("parse"), INPUTS[0]
        run.add(one, Said("parse", FIRST_MS - early_ms, one.fields))
        run.advance(FAR_MS)
        assert verdicts(run.totals()) == {verdict: 1}


def test_a_sample_of_an_early_output_tells_what_all_records_imply():
    run = a_run("revenue")
    run.add(*INPUTS, revenue(LAST_MS - 1_001, 10.0))
    run.advance(FAR_MS)
    events = list(run.evaluation.take_events())
    assert any(topic == catalogue.VERDICTS for topic, _ in events)
    (sample,) = [one for one in samples_of(events) if '"wrong"' in one]
    assert '"expected": {"window_end": 1800000008000, "revenue": 15.0}' in sample
