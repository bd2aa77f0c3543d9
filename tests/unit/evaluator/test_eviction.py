"""The pairing state is bounded, and evicting finished groups changes no total."""

import numpy as np
import pytest

from services.evaluator.columnar.columns import LIMITS, UNKNOWN, StateLimits
from services.evaluator.pairing.counters import EvictedMissing
from tests.unit.evaluator.oracle import expectations, judge
from tests.unit.evaluator.records import (
    FAR_MS,
    MEASURE_MS,
    START_MS,
    Output,
    Reading,
    Run,
    joined,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]

SECONDS = 60
BRIEF = StateLimits(keep_s=5)
SEQUENCES_PER_RECORD = 2_000  # so that a block of sequences fills within a few seconds


def a_minute(lost=7):
    """60 s of two sites with one lane each; every 7th output lost (0: none), every 11th
    repeated."""
    readings = []
    for second in range(SECONDS):
        for place, (site, kind) in enumerate(
            (site, kind) for site in "ab" for kind in ("flow", "speed")
        ):
            number = 4 * second + place
            readings.append(
                Reading(
                    kind,
                    START_MS + 1_000 * second + 10 * place,
                    number,
                    number * SEQUENCES_PER_RECORD,
                    START_MS + 1_000 * second,
                    (START_MS + 1_000 * second) * 1_000,
                    site,
                )
            )
    outputs = []
    for stage, due in expectations(readings).items():
        for number, expected in enumerate(due.values()):
            is_lost = lost and number % lost == lost - 1
            for _copy in range(0 if is_lost else 2 if number % 11 == 10 else 1):
                fields, raw = expected.content, b""
                if stage == "ingest":
                    fields, raw = None, expected.content
                outputs.append(Output(stage, expected.latest_ms + 5, fields, raw))
    return readings, sorted(outputs, key=lambda output: output.appended_ms)


def evaluate(readings, outputs, limits=LIMITS):
    """Second by second; returns the run and the maximum number of groups and cells."""
    run, groups, cells = Run(limits=limits), 0, 0
    for second in range(SECONDS):
        from_ms, until_ms = START_MS + 1_000 * second, START_MS + 1_000 * (second + 1)
        now = [r for r in (*readings, *outputs) if from_ms <= r.appended_ms < until_ms]
        run.add(*sorted(now, key=lambda record: record.topic))
        run.advance(until_ms)
        groups = max(groups, *(len(state.newest_ms) for state in run.evaluation.states))
        cells = max(cells, run.evaluation.cells())
    return run, groups, cells


def test_nothing_is_forgotten_within_the_time_that_state_is_kept():
    readings, outputs = a_minute()
    run, groups, _cells = evaluate(readings, outputs)
    run.advance(START_MS + 100_000)
    assert groups == SECONDS
    assert run.totals() == judge(readings, outputs)


def test_a_short_memory_changes_no_total_and_stays_small():
    readings, outputs = a_minute(lost=0)
    run, groups, _cells = evaluate(readings, outputs, BRIEF)
    run.advance(FAR_MS)
    assert groups <= 7
    assert all(len(state.newest_ms) <= 3 for state in run.evaluation.states)
    assert run.totals() == judge(readings, outputs)


def test_a_full_memory_gives_up_what_is_settled_and_changes_no_total():
    readings, outputs = a_minute()
    unbounded = evaluate(readings, outputs)[2]
    run, _groups, cells = evaluate(readings, outputs, StateLimits(cells=unbounded // 4))
    run.advance(FAR_MS)
    assert cells <= unbounded // 2
    assert run.totals() == judge(readings, outputs)
    assert run.evaluation.came_forgotten == 0


def test_nothing_is_forgotten_before_its_outputs_are_read_however_far_the_inputs_were():
    flow = Reading("flow", START_MS + 2_100, 300, sequence=0)
    run = Run("ingest", limits=BRIEF)
    run.add(flow)
    run.advance(FAR_MS, START_MS + 4_150)
    assert run.totals().verdicts == {("ingest", "measure", "missing"): 1}
    run.add(Output("ingest", START_MS + 4_200, None, flow.encoded))
    run.advance(FAR_MS, START_MS + 4_201)
    assert run.totals().verdicts == {("ingest", "measure", "late"): 1}


def test_an_output_of_what_was_forgotten_is_a_duplicate():
    flow = Reading("flow", START_MS + 2_100, 300, sequence=0)
    run = Run("ingest", limits=BRIEF)
    run.add(flow, Output("ingest", START_MS + 2_101, None, flow.encoded))
    run.advance(START_MS + 60_000)
    assert run.evaluation.cells() == 0
    run.add(Output("ingest", START_MS + 60_001, None, flow.encoded))
    run.advance(FAR_MS)
    assert run.totals().verdicts == {
        ("ingest", "measure", "exact"): 1,
        ("ingest", "cool_down", "duplicate"): 1,
    }


def test_an_output_that_comes_after_anything_is_remembered_is_late():
    flow = Reading("flow", START_MS + 2_100, 300, sequence=0)
    output = Output("ingest", START_MS + 60_001, None, flow.encoded)
    run = Run("ingest", limits=BRIEF)
    run.add(flow)
    run.advance(START_MS + 60_000)
    assert run.totals().verdicts == {("ingest", "measure", "missing"): 1}
    run.add(output)
    run.advance(START_MS + 70_000)
    assert run.totals().verdicts == {("ingest", "measure", "late"): 1}
    assert run.totals().latencies["ingest", "latest", "measure", 57_901] == 1
    assert run.evaluation.cells() == 0
    assert run.evaluation.came_forgotten == 0


def a_full_memory(*outputs, scheduled_ms=MEASURE_MS):
    """Two blocks of sequences in a memory for less; the older one is evicted with its outputs."""
    run = Run("ingest", limits=StateLimits(cells=1))
    first = Reading("flow", START_MS + 2_100, 300, 0, scheduled_us=scheduled_ms * 1_000)
    run.add(first, Reading("flow", START_MS + 2_101, 300, 1 << 16))
    run.add(*(Output("ingest", START_MS + at_ms, None, first.encoded) for at_ms in outputs))
    run.advance(START_MS + 60_000)
    assert [list(state.newest_ms) for state in run.evaluation.states] == [[1]]
    return run, Output("ingest", START_MS + 60_001, None, first.encoded)


def test_an_output_that_a_full_memory_had_no_place_for_is_told_once():
    run, output = a_full_memory()
    assert run.evaluation.came_forgotten == 0
    for _copy in range(2):
        run.add(output)
        run.read_all()
        assert run.evaluation.came_forgotten == 1
    assert run.totals().verdicts["ingest", "cool_down", "duplicate"] == 2


def test_what_came_before_it_was_forgotten_is_a_duplicate_and_nothing_else():
    run, output = a_full_memory(2_102)
    run.add(output)
    run.read_all()
    assert run.evaluation.came_forgotten == 0


def test_what_was_forgotten_of_the_warm_up_does_not_matter():
    run, output = a_full_memory(scheduled_ms=MEASURE_MS - 1)
    run.add(output)
    run.read_all()
    assert run.evaluation.came_forgotten == 0


def test_outputs_that_are_not_located_count_as_those_that_are_missing():
    known = EvictedMissing()
    known.add(5, np.array([3, 4, 7]))
    assert known.came(5, np.array([UNKNOWN, UNKNOWN])) == 2
    assert known.came(5, np.array([UNKNOWN, UNKNOWN])) == 1


def test_every_output_counts_where_even_the_addresses_are_too_many():
    known = EvictedMissing(3)
    known.add(5, np.array([0, 1]))
    known.add(6, np.array([0, 1]))
    assert known.came(5, np.array([9, 9])) == 2  # not known
    assert known.came(6, np.array([1, 9])) == 1
    assert known.came(7, np.array([0])) == 0


def test_many_keys_with_event_times_of_their_own_take_few_cells():
    readings, outputs = [], []
    for number in range(3_000):
        mine = {"observed_ms": START_MS + number, "site": f"s{number}"}
        readings += [
            Reading(kind, START_MS + number, 60, 2 * number + place, **mine)
            for place, kind in enumerate(("flow", "speed"))
        ]
        columns = {"measurement_id": mine["site"], "observed_at": mine["observed_ms"]}
        outputs.append(Output("join", START_MS + number + 5, joined(60, 60.0, **columns)))
    run = Run("join")
    run.add(*sorted(readings, key=lambda one: one.topic), *outputs)
    run.read_all()
    assert run.totals().verdicts == {("join", "measure", "exact"): 3_000}
    assert run.evaluation.cells() < 1_200_000  # not 3,000 x 3,000
