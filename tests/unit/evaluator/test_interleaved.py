"""Interleaved pipelines are each judged by the inputs that they received."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from schemas import catalogue
from schemas.protocol import Interleaving, Pipeline, RunPlan
from services.evaluator.columnar.columns import StateLimits
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from services.evaluator.run.publishing import InterleavedEvaluation, evaluation_of
from tests.unit.evaluator.records import FAR_MS, PHASES, START_MS, Output, Reading, a_plan, parsed

pytestmark = pytest.mark.unit


def a_plan_in_turns() -> RunPlan:
    plan = a_plan(("parse",))
    pipelines = tuple(Pipeline(name=name, summary="-", engine="spark") for name in ("p", "q"))
    turns = Interleaving(block_s=1, order=("p", "q"))
    fields = {"pipelines": pipelines, "interleaved": turns}
    return plan.model_copy(update={"request": plan.request.model_copy(update=fields)})


@dataclass(frozen=True)
class Judged:
    """Sums of an evaluation's events."""

    verdicts: Counter[tuple[str, str]]
    records: Counter[str]


def judged(evaluation: InterleavedEvaluation) -> Judged:
    verdicts, records = Counter[tuple[str, str]](), Counter[str]()
    for topic, fields in evaluation.take_events():
        if topic == catalogue.VERDICTS:
            for name in ("exact", "missing", "unexpected"):
                verdicts[fields["pipeline"], name] += fields[name]
        elif topic == catalogue.THROUGHPUT:
            records[fields["topic"]] += fields["records"]
    return Judged(+verdicts, records)


def add(evaluation: InterleavedEvaluation, topic: str, appended_ms: int, value: bytes) -> None:
    evaluation.add(RecordBatch(topic, np.array([appended_ms], np.int64), [value], [b"a"]))


def test_an_output_is_expected_of_the_pipeline_only_that_was_given_its_input() -> None:
    evaluation = evaluation_of(a_plan_in_turns(), PHASES)
    assert isinstance(evaluation, InterleavedEvaluation)
    first = Reading("flow", START_MS + 2_100, 300, sequence=0)
    second = Reading("flow", START_MS + 3_100, 310, sequence=2, observed_ms=START_MS + 1_000)
    third = Reading("flow", START_MS + 3_200, 320, sequence=4, observed_ms=START_MS + 1_500)
    add(evaluation, "traffic.flow.p", first.appended_ms, first.encoded)
    for reading in (second, third):
        add(evaluation, "traffic.flow.q", reading.appended_ms, reading.encoded)
    for topic, reading in (("output.p.parse", first), ("output.q.parse", second)):
        add(evaluation, topic, reading.appended_ms + 4, Output("parse", 0, parsed(reading)).encoded)
    evaluation.advance(FAR_MS, FAR_MS)
    found = judged(evaluation)
    assert found.verdicts == {("p", "exact"): 1, ("q", "exact"): 1, ("q", "missing"): 1}
    assert found.records["traffic.flow.p"] == 1
    assert found.records["traffic.flow.q"] == 2
    assert evaluation.open_in_measure() == 0


def test_measured_latencies_are_counted_by_the_second_of_the_latest_input_too() -> None:
    evaluation = evaluation_of(a_plan_in_turns(), PHASES)
    inputs_ms = (1_999, 2_000, 2_999, 3_000, 3_001)
    for sequence, at_ms in enumerate(inputs_ms):
        # The first is of the warm-up.
        one = Reading(
            "flow",
            START_MS + at_ms,
            300,
            sequence,
            scheduled_us=(START_MS + at_ms) * 1_000,
        )
        add(evaluation, "traffic.flow.p", one.appended_ms, one.encoded)
        output = Output("parse", 0, parsed(one)).encoded
        add(evaluation, "output.p.parse", START_MS + 3_400, output)
    evaluation.advance(FAR_MS, FAR_MS)
    slices = [fields for topic, fields in evaluation.take_events() if topic == catalogue.SLICES]
    head = {"pipeline": "p", "stage": "parse", "dimension": "input_second", "minute": START_MS}
    assert slices == [
        head | {"value": "1800000002", "latencies_ms": [401, 1_400], "counts": [1, 1]},
        head | {"value": "1800000003", "latencies_ms": [399, 400], "counts": [1, 1]},
    ]
    assert list(evaluation.take_events()) == []


def filled(limits: StateLimits) -> InterleavedEvaluation:
    """Two blocks of inputs of each pipeline."""
    evaluated = evaluation_of(a_plan_in_turns(), PHASES, limits)
    assert isinstance(evaluated, InterleavedEvaluation)
    for pipeline in ("p", "q"):
        for block in range(2):
            reading = Reading("flow", START_MS + 2_100 + block, 300, sequence=block << 16)
            add(evaluated, f"traffic.flow.{pipeline}", reading.appended_ms, reading.encoded)
    return evaluated


def test_the_pipelines_share_the_memory() -> None:
    cells = filled(StateLimits()).cells()
    for limit, kept in ((cells, cells), (cells - 2, cells // 2)):
        evaluated = filled(StateLimits(cells=limit))
        evaluated.advance(START_MS + 60_000, START_MS + 60_000)
        assert evaluated.cells() == kept


def test_a_run_on_one_input_has_one_evaluation() -> None:
    assert isinstance(evaluation_of(a_plan(("parse",)), PHASES), Evaluation)


def test_a_run_with_partitions_of_its_own_is_judged_by_its_own_topics() -> None:
    request = a_plan(("parse",)).request
    workload = request.workload.model_copy(update={"partitions": 4})
    plan = RunPlan(request=request.model_copy(update={"workload": workload}), start_offsets={})
    evaluation = evaluation_of(plan, PHASES)
    assert isinstance(evaluation, Evaluation)
    assert set(evaluation.topics) == {
        "traffic.flow.4-partitions",
        "traffic.speed.4-partitions",
        "output.p.parse",
    }
