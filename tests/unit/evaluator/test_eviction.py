"""The pairing state is bounded, and forgetting what is settled changes no total."""

import pytest

from services.evaluator import evaluation
from tests.unit.evaluator.oracle import expectations, judge
from tests.unit.evaluator.records import FAR_MS, START_MS, Output, Reading, Run

pytestmark = pytest.mark.unit

SECONDS = 60
SEQUENCES_PER_RECORD = 2_000  # so that a block of sequences is full within a few seconds


def a_minute():
    """60 s of two sites with one lane each; every 7th output lost, every 11th twice."""
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
            for _copy in range(0 if number % 7 == 6 else 2 if number % 11 == 10 else 1):
                fields, raw = expected.content, b""
                if stage == "ingest":
                    fields, raw = None, expected.content
                outputs.append(Output(stage, expected.latest_ms + 5, fields, raw))
    return readings, sorted(outputs, key=lambda output: output.appended_ms)


def evaluate(readings, outputs):
    """Second by second; returns the run and the most groups and cells that were kept."""
    run, groups, cells = Run(), 0, 0
    for second in range(SECONDS):
        from_ms, until_ms = START_MS + 1_000 * second, START_MS + 1_000 * (second + 1)
        now = [r for r in (*readings, *outputs) if from_ms <= r.appended_ms < until_ms]
        run.add(*sorted(now, key=lambda record: record.topic))
        run.advance(until_ms)
        groups = max(groups, *(len(g) for g in run.evaluation.inputs.newest_ms.values()))
        cells = max(cells, run.evaluation.inputs.rows())
    return run, groups, cells


def test_nothing_is_forgotten_within_the_time_that_state_is_kept():
    readings, outputs = a_minute()
    run, groups, _cells = evaluate(readings, outputs)
    run.advance(START_MS + 100_000)
    assert groups == SECONDS
    assert run.totals() == judge(readings, outputs)


def test_a_short_memory_changes_no_total_and_stays_small(monkeypatch):
    monkeypatch.setattr(evaluation, "KEEP_S", 5)
    readings, outputs = a_minute()
    run, groups, _cells = evaluate(readings, outputs)
    run.advance(FAR_MS)
    assert groups <= 7
    assert all(len(kept) <= 3 for kept in run.evaluation.inputs.newest_ms.values())
    assert run.totals() == judge(readings, outputs)


def test_a_full_memory_gives_up_what_is_settled_and_changes_no_total(monkeypatch):
    readings, outputs = a_minute()
    unbounded = evaluate(readings, outputs)[2]
    monkeypatch.setattr(evaluation, "MAX_CELLS", unbounded // 4)
    run, _groups, cells = evaluate(readings, outputs)
    run.advance(FAR_MS)
    assert cells <= unbounded // 2
    assert run.totals() == judge(readings, outputs)


def test_nothing_is_forgotten_before_its_outputs_are_read_however_far_the_inputs_were(monkeypatch):
    monkeypatch.setattr(evaluation, "KEEP_S", 5)
    flow = Reading("flow", START_MS + 2_100, 300, sequence=0)
    run = Run("ingest")
    run.add(flow)
    run.advance(FAR_MS, START_MS + 4_150)
    assert run.totals().verdicts == {("ingest", "measure", "missing"): 1}
    run.add(Output("ingest", START_MS + 4_200, None, flow.encoded))
    assert run.totals().verdicts == {("ingest", "measure", "late"): 1}


def test_an_output_of_what_was_forgotten_is_a_duplicate(monkeypatch):
    monkeypatch.setattr(evaluation, "KEEP_S", 5)
    flow = Reading("flow", START_MS + 2_100, 300, sequence=0)
    run = Run("ingest")
    run.add(flow, Output("ingest", START_MS + 2_101, None, flow.encoded))
    run.advance(START_MS + 60_000)
    assert not run.evaluation.inputs.sequences
    run.add(Output("ingest", START_MS + 60_001, None, flow.encoded))
    run.advance(FAR_MS)
    assert run.totals().verdicts == {
        ("ingest", "measure", "exact"): 1,
        ("ingest", "cool_down", "duplicate"): 1,
    }
