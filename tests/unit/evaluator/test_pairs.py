"""Single pairs: the output, its input times and its verdict; each published once."""

import numpy as np
import pytest

from schemas import catalogue
from schemas.load import Constant
from schemas.workload import Workload
from services.evaluator.columnar.columns import UNKNOWN, StateLimits
from services.evaluator.columnar.outputs import Outputs
from services.evaluator.expected.stages import Expected
from services.evaluator.pairing.counters import MatchLog, pack_offsets, without
from services.evaluator.pairing.evaluation import RecordBatch
from tests.unit.evaluator.records import (
    START_MS,
    Output,
    Reading,
    Run,
    a_plan,
    parsed,
    tumbled,
)
from tests.unit.evaluator.test_processing_time import a_run, batch_of, fetches

pytestmark = pytest.mark.unit

MEASURED = {"pipeline": "p", "phases": ["measure"], "partitions": [3]}


def add_output(run, output, partition, offset):
    """An output with known partition and offset."""
    appended_ms = np.array([output.appended_ms], np.int64)
    place = pack_offsets(np.array([partition]), np.array([offset]))
    keys, partitions = [output.key_on_the_wire], np.array([partition])
    run.evaluation.add(
        RecordBatch(output.topic, appended_ms, [output.encoded], keys, partitions, place)
    )


def pairs_of(run):
    run.advance(START_MS + 3_500)
    return [event for topic, event in run.evaluation.take_events() if topic == catalogue.PAIRS]


def test_a_pair_says_where_its_output_is_and_when_its_inputs_came():
    run = Run("tumbling")
    run.add(Reading("flow", START_MS + 2_100, 300), Reading("speed", START_MS + 2_103, 80.0, 1))
    add_output(run, Output("tumbling", START_MS + 2_150, tumbled(1, 300, 80.0)), 3, 70_000_000_000)
    assert pairs_of(run) == [
        MEASURED
        | {
            "stage": "tumbling",
            "verdicts": ["exact"],
            "offsets": [70_000_000_000],
            "appended_ms": [START_MS + 2_150],
            "latest_input_ms": [START_MS + 2_103],
            "mean_input_ms": [START_MS + 2_101.5],
            "scheduled_us": [(START_MS + 2_000) * 1_000],
        }
    ]
    assert pairs_of(run) == []


@pytest.mark.parametrize(
    ("later", "mean_ms"), [(0, 100), (4_499, 100), (4_500, 100), (4_501, 99), (9_000, 99)]
)
def test_the_mean_latency_of_a_pair_in_sql_is_the_one_that_is_counted(later, mean_ms):
    out_ms, one = np.array([START_MS + 100]), np.ones(1, np.int64)
    expected = Expected(one > 0, one, 9_000 * one, later * one, one, START_MS)
    assert expected.mean_latency_ms(out_ms).tolist() == [mean_ms]
    # As computed by deploy/clickhouse/022_pairs.sql.
    assert np.floor(out_ms - expected.mean_input_ms() + 0.5).tolist() == [mean_ms]


@pytest.mark.parametrize(
    ("out_ms", "changes", "verdict"),
    [(2_150, {}, "exact"), (3_101, {}, "late"), (2_150, {"num_lanes": 7}, "wrong")],
)
def test_a_pair_has_the_verdict_of_its_output(out_ms, changes, verdict):
    flow = Reading("flow", START_MS + 2_100, 300)
    run = Run("parse")
    run.add(flow)
    add_output(run, Output("parse", START_MS + out_ms, parsed(flow) | changes), 3, 1)
    (event,) = pairs_of(run)
    assert event["verdicts"] == [verdict]


def test_an_output_that_came_before_its_input_was_read_is_paired_and_a_duplicate_is_not():
    flow = Reading("flow", START_MS + 2_100, 300)
    run = Run("parse")
    for offset in (5, 6):
        add_output(run, Output("parse", START_MS + 2_150, parsed(flow)), 0, offset)
    run.add(flow)
    (event,) = pairs_of(run)
    assert event["offsets"] == [5]


def test_without_places_there_are_no_pairs():
    flow = Reading("flow", START_MS + 2_100, 300)
    run = Run("parse")
    run.add(flow, Output("parse", START_MS + 2_150, parsed(flow)))
    assert pairs_of(run) == []


def test_an_event_holds_a_bounded_number_of_pairs():
    run = Run("parse", limits=StateLimits(pairs_of_event=2))
    for number in range(5):
        flow = Reading("flow", START_MS + 2_100, 300, number)
        run.add(flow)
        add_output(run, Output("parse", START_MS + 2_150, parsed(flow)), 0, number)
    assert [event["offsets"] for event in pairs_of(run)] == [[0, 1], [2, 3], [4]]


def test_what_was_published_before_is_left_out():
    event = {"stage": "parse", "partitions": [0, 1, 0], "offsets": [7, 7, 8], "verdicts": [*"abc"]}
    known = pack_offsets(np.array([0, 0]), np.array([7, 9]))
    assert without(event, known) == {
        "stage": "parse",
        "partitions": [1, 0],
        "offsets": [7, 8],
        "verdicts": ["b", "c"],
    }
    assert without(event, pack_offsets(np.array([0, 0, 1]), np.array([7, 8, 7]))) is None


@pytest.mark.parametrize(
    ("pairs", "rate", "published"),
    [
        ("auto", 1_000, True),
        ("auto", 1_001, False),
        ("all", 50_000, True),
        ("none", 1, False),
    ],
)
def test_a_workload_says_whether_pairs_are_published(pairs, rate, published):
    workload = Workload(name="w", summary="-", load=Constant(rate_per_second=rate), pairs=pairs)
    assert workload.publishes_pairs is published


def test_a_pair_says_when_consumers_had_its_output_and_the_pipeline_its_inputs():
    run = a_run(a_plan(("parse",)))
    flow = Reading("flow", START_MS + 2_100, 300, offset=0)
    run.add(flow)
    handed = fetches(flow.topic, 0, [0], [START_MS + 2_110])
    run.evaluation.add(batch_of(handed, fetches("", -1, [], [])))
    output = Output("parse", START_MS + 2_150, parsed(flow))
    run.evaluation.add(
        RecordBatch(
            output.topic,
            np.array([output.appended_ms]),
            [output.encoded],
            [output.key_on_the_wire],
            np.array([3]),
            places=pack_offsets(np.array([3]), np.array([7])),
            visible_ms=np.array([START_MS + 2_400]),
        )
    )
    (event,) = pairs_of(run)
    assert event["visible_from_ms"] == [START_MS + 2_400]
    assert event["handed_ms"] == [START_MS + 2_110]


def test_times_of_pairs_that_are_not_known_are_none():
    log, one = MatchLog(), np.ones(2, np.int64)
    places = pack_offsets(0 * one, np.array([7, 8]))
    rows = Outputs(one, one, one, {}, places, visible_ms=np.array([5, UNKNOWN]))
    log.add(rows, Expected(one > 0, one, one, one, one, 0), one, np.array(["exact"] * 2))
    (event,) = log.take_events()
    assert event["visible_from_ms"] == [5, None]
    assert "handed_ms" not in event
