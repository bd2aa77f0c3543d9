"""Latency of a system behind sockets, in nanoseconds: from sending the latest contributing record
to receiving the result, whatever the order in which both are appended."""

import numpy as np
import pytest

from schemas.frame import STAMP, STAMP_HEADER
from services.evaluator.columnar.columns import UNKNOWN
from services.evaluator.pairing.counters import SocketTimes
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from services.evaluator.run.reader import stamp_ns
from tests.unit.evaluator import records
from tests.unit.evaluator.records import FAR_MS, MEASURE_MS, PHASES, Output, Reading

pytestmark = pytest.mark.unit


def a_run(*stages):
    """An evaluation of a system behind sockets; its input topics have one partition."""
    plan = records.a_plan(stages)
    workload = plan.request.workload.model_copy(update={"transport": "tcp"})
    pipeline = plan.request.pipelines[0].model_copy(update={"engine": "socket"})
    request = plan.request.model_copy(update={"workload": workload, "pipelines": (pipeline,)})
    offsets = dict.fromkeys(request.input_topics, (0,))
    return Evaluation(
        plan.model_copy(update={"request": request, "start_offsets": offsets}), PHASES
    )


def add(evaluation, *stamped):
    """Add records with their stamps; offsets by topic, from 0."""
    seen = {}
    for record, stamp in stamped:
        offset = seen[record.topic] = seen.get(record.topic, -1) + 1
        is_input = isinstance(record, Reading)
        evaluation.add(
            RecordBatch(
                record.topic,
                np.array([record.appended_ms]),
                [record.encoded],
                None if is_input else [record.key_on_the_wire],
                np.zeros(1, np.int64),
                offsets=np.array([offset]) if is_input else None,
                stamps_ns=np.array([stamp]),
            )
        )


def times_of(evaluation):
    return {stage: times for _, stage, times in evaluation.socket_latencies()}


def test_it_counts_from_the_latest_contributing_record():
    flow, speed = Reading("flow", MEASURE_MS, 60), Reading("speed", MEASURE_MS + 1, 50.0, 1)
    evaluation = a_run("parse", "join")
    add(
        evaluation,
        (flow, 100),
        (speed, 250),
        (Output("parse", MEASURE_MS + 2, records.parsed(flow)), 400),
        (Output("parse", MEASURE_MS + 2, records.parsed(speed)), 1_250),
        (Output("join", MEASURE_MS + 2, records.joined(60, 50.0)), 1_000),
    )
    evaluation.advance(FAR_MS, FAR_MS)
    found = times_of(evaluation)
    assert (found["parse"].count, found["parse"].unknown) == (2, 0)
    assert found["parse"].figures() | {"p50": 300, "max": 1_000} == found["parse"].figures()
    assert found["join"].figures()["p99"] == 1_000 - 250


def test_a_result_may_be_appended_before_its_record():
    flow = Reading("flow", MEASURE_MS + 30, 60)
    evaluation = a_run("parse")
    add(evaluation, (Output("parse", MEASURE_MS, records.parsed(flow)), 170), (flow, 100))
    evaluation.advance(FAR_MS, FAR_MS)
    assert times_of(evaluation)["parse"].figures()["mean"] == 70
    verdicts = [fields for topic, fields in evaluation.take_events() if "exact" in fields]
    assert [fields["exact"] for fields in verdicts] == [1]


def test_only_measured_outputs_count_and_those_without_stamps_are_unknown():
    warm = Reading("flow", MEASURE_MS - 1_000, 1, 0, scheduled_us=(MEASURE_MS - 1_000) * 1_000)
    known, unsent, unheard = (Reading("flow", MEASURE_MS, number, number) for number in (1, 2, 3))
    evaluation = a_run("parse")
    said = [Output("parse", MEASURE_MS + 5, records.parsed(each)) for each in (warm, known)]
    more = [Output("parse", MEASURE_MS + 5, records.parsed(each)) for each in (unsent, unheard)]
    add(
        evaluation,
        *((warm, 1), (known, 2), (unsent, UNKNOWN), (unheard, 4)),
        *((said[0], 10), (said[1], 12), (more[0], 14), (more[1], UNKNOWN)),
    )
    evaluation.advance(FAR_MS, FAR_MS)
    found = times_of(evaluation)["parse"]
    assert (found.count, found.unknown, found.figures()["max"]) == (1, 2, 10)


def test_missing_outputs_of_the_whole_load_are_awaited():
    late = Reading("flow", MEASURE_MS, 1, scheduled_us=(MEASURE_MS + 4_000) * 1_000)
    evaluation = a_run("parse")
    add(evaluation, (late, 1))
    evaluation.advance(MEASURE_MS + 100, MEASURE_MS + 100)
    assert evaluation.open_in_measure() > 0
    evaluation.advance(FAR_MS, FAR_MS)
    assert evaluation.open_in_measure() == 0


def test_percentiles_are_nearest_rank_and_the_rest_is_unknown():
    times = SocketTimes(limit=100)
    assert times.figures()["p50"] is None
    times.add(np.arange(60, 0, -1))
    times.add(np.arange(61, 121))
    figures = times.figures()
    assert (times.count, times.unknown) == (100, 20)
    assert [figures[name] for name in ("min", "p50", "p99", "max")] == [1, 50, 99, 100]
    assert figures["mean"] == 50.5


@pytest.mark.parametrize(
    ("headers", "stamp"),
    [
        (None, UNKNOWN),
        ([("other", b"12345678")], UNKNOWN),
        ([("other", b""), (STAMP_HEADER, STAMP.pack(77))], 77),
        ([(STAMP_HEADER, b"7")], UNKNOWN),
        ([(STAMP_HEADER, None)], UNKNOWN),
        ([(STAMP_HEADER, STAMP.pack(-9))], UNKNOWN),
    ],
)
def test_a_stamp_is_eight_bytes_of_a_header(headers, stamp):
    assert stamp_ns(headers) == stamp
