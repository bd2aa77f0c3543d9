"""Outputs in transactions: when readers of committed records have them, and whether that is late.

Times are milliseconds after START_MS. A join of FLOW and SPEED is due with latest 2300; it is late
after 1000 ms.
"""

from dataclasses import replace

import pytest

from tests.unit.evaluator.outputs import FLOW, SPEED, join
from tests.unit.evaluator.records import START_MS, Output, Reading, Run, parsed

pytestmark = pytest.mark.unit


def visible(output, after_ms):
    return replace(output, visible_ms=START_MS + after_ms)


def of_join(run, *records):
    run.add(*records)
    run.read_all()
    totals = run.totals()
    latencies = {key[1:]: n for key, n in totals.latencies.items() if key[0] == "join"}
    verdicts = {key[2]: n for key, n in totals.verdicts.items() if key[0] == "join"}
    return latencies, verdicts


def test_visible_is_measured_beside_the_append():
    latencies, verdicts = of_join(Run("join"), FLOW, SPEED, visible(join(2_400), 9_300))
    assert latencies == {
        ("latest", "measure", 100): 1,
        ("mean", "measure", 200): 1,
        ("event_time", "measure", 400): 1,
        ("visible", "measure", 7_000): 1,
    }
    assert verdicts == {"exact": 1}


def test_a_partition_without_transactions_has_no_visible_latency():
    latencies, _ = of_join(Run("join"), FLOW, SPEED, join(2_400))
    assert "visible" not in {definition for definition, _, _ in latencies}


def test_partitions_with_and_without_transactions_are_told_apart_in_one_batch():
    inputs = [Reading("flow", START_MS + 2_000, 1, sequence=n) for n in range(2)]
    plain, committed = (
        Output("parse", START_MS + 2_050, parsed(each), partition=number)
        for number, each in enumerate(inputs)
    )
    run = Run("parse")
    run.add(*inputs, plain, visible(committed, 2_900))
    run.read_all()
    found = run.totals().latencies
    assert {key[1:]: n for key, n in found.items() if key[1] in ("latest", "visible")} == {
        ("latest", "measure", 50): 2,
        ("visible", "measure", 900): 1,
    }


def test_an_output_that_waited_for_its_inputs_keeps_its_visible_time():
    latencies, _ = of_join(Run("join"), visible(join(2_290), 2_500), FLOW, SPEED)
    assert latencies["visible", "measure", 200] == 1


@pytest.mark.parametrize(
    ("deadline_of", "after_ms", "verdict"),
    [("latest", 9_000, "exact"), ("visible", 3_301, "late"), ("visible", 3_300, "exact")],
)
def test_a_deadline_is_that_of_the_definition_asked_for(deadline_of, after_ms, verdict):
    run = Run("join", deadline_of=deadline_of)
    assert of_join(run, FLOW, SPEED, visible(join(2_400), after_ms))[1] == {verdict: 1}


def test_without_a_transaction_the_deadline_is_that_of_the_append():
    run = Run("join", deadline_of="visible")
    assert of_join(run, FLOW, SPEED, join(3_301))[1] == {"late": 1}


def test_aborted_records_are_counted_apart():
    run = Run("join")
    topic = join(0).topic
    run.evaluation.add_aborted({topic: {START_MS: 4}})
    run.evaluation.add_aborted({topic: {START_MS: 3}})
    events = [fields for name, fields in run.evaluation.take_events() if "throughput" in name]
    assert [(each["topic"], each["records"], each["aborted"]) for each in events] == [(topic, 0, 7)]
    assert not run.totals().verdicts
