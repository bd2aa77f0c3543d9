"""The key of an output is its measurement id: an output with another one, or none, is wrong."""

import json

import pytest

from tests.unit.evaluator.outputs import FLOW, SPEED, three_seconds
from tests.unit.evaluator.records import (
    FAR_MS,
    START_MS,
    Output,
    Run,
    joined,
    parsed,
    slid,
    tumbled,
)

pytestmark = pytest.mark.unit

VALUES_SAID = {"flow_vehicles_per_hour": 300, "speed_km_per_hour": 80.0}
INPUTS = list(three_seconds((100, 200, 300), (80.0, 50.0, 60.0)))
FIRST = INPUTS[0]
SAID = {
    "ingest": (None, FIRST.encoded),
    "parse": (parsed(FIRST), b""),
    "join": (joined(100, 80.0), b""),
    "tumbling": (tumbled(1, 100, 80.0), b""),
    "sliding": (slid((0.5, 2.0), (0.2, -0.25)), b""),
}


def judged(stage, *keys):
    """Verdicts and samples of one output of site a with each of these keys."""
    run = Run(stage)
    fields, raw = SAID[stage]
    outputs = [Output(stage, START_MS + 4_200, fields, raw, key) for key in keys]
    run.add(*INPUTS, *outputs)
    run.advance(START_MS + 4_201)
    found = run.totals().verdicts
    counts = {verdict: n for (_, _, verdict), n in found.items() if verdict != "missing"}
    return counts, [json.loads(one) for one in run.samples if '"missing"' not in one]


@pytest.mark.parametrize("stage", SAID)
def test_the_measurement_id_is_the_right_key(stage):
    counts, samples = judged(stage, b"a")
    assert sum(counts.values()) == 1
    assert "wrong" not in counts
    assert samples == []


@pytest.mark.parametrize("stage", SAID)
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"b", "b"),
        (b"", ""),
        (None, None),
        (b"a ", "a "),
        (b"\xff\x00", "\\xff\x00"),
        (b"k" * 300, "k" * 200),
    ],
    ids=["another", "empty", "none", "longer", "no text", "very long"],
)
def test_any_other_key_is_wrong_and_told(stage, key, text):
    counts, (sample,) = judged(stage, key)
    assert counts == {"wrong": 1}
    assert sample["verdict"] == "wrong"
    assert sample["measurement_id"] == "a"
    assert (sample["expected"]["key"], sample["actual"]["key"]) == ("a", text)


def test_a_sample_of_a_wrong_value_does_not_speak_of_a_key_that_is_right():
    run = Run("join")
    run.add(FLOW, SPEED, Output("join", START_MS + 2_400, joined(301, 80.0)))
    run.advance(FAR_MS)
    run.totals()
    (sample,) = map(json.loads, run.samples)
    assert sample["expected"] == {"num_lanes": 1} | VALUES_SAID
    assert sample["actual"] == {"num_lanes": 1} | VALUES_SAID | {"flow_vehicles_per_hour": 301}


def test_each_row_of_a_batch_is_judged_by_its_own_key():
    run = Run("parse")
    keys = [b"a", b"b", None, b"a"]
    said = [
        Output("parse", START_MS + 5_000, parsed(one), b"", key)
        for one, key in zip(INPUTS, keys, strict=False)
    ]
    run.add(*INPUTS, Output("parse", START_MS + 4_999, None, b"no record"), *said)
    run.advance(START_MS + 5_001)
    found = run.totals().verdicts
    assert found["parse", "measure", "wrong"] == 2
    sequences = {
        one["sequence"] for one in map(json.loads, run.samples) if one["verdict"] == "wrong"
    }
    assert sequences == {1, 2}


def test_a_second_output_with_a_wrong_key_is_a_duplicate():
    assert judged("parse", b"a", b"b") == ({"late": 1, "duplicate": 1}, [])
    counts, _samples = judged("parse", b"b", b"a")
    assert counts == {"wrong": 1, "duplicate": 1}


@pytest.mark.parametrize("partitions", [(0, 1), (1, 0)])
def test_of_two_outputs_in_two_partitions_the_older_one_is_the_first(partitions):
    older, newer = (
        Output("join", START_MS + 2_400, joined(300, 80.0), b"", b"a", partitions[0]),
        Output("join", START_MS + 2_401, joined(300, 80.0), b"", b"x", partitions[1]),
    )
    for order in ((older, newer), (newer, older)):
        run = Run("join")
        run.add(FLOW, SPEED, order[0])
        run.add(order[1])
        run.advance(START_MS + 2_500)
        assert run.totals().verdicts == {
            ("join", "measure", "exact"): 1,
            ("join", "measure", "duplicate"): 1,
        }


def test_within_a_millisecond_the_lower_partition_is_the_first():
    said = [
        Output("join", START_MS + 2_400, joined(300, 80.0), b"", key, partition)
        for key, partition in ((b"x", 1), (b"a", 0))
    ]
    for order in (said, said[::-1]):
        run = Run("join")
        run.add(FLOW, SPEED, *order)
        run.advance(START_MS + 2_500)
        assert run.totals().verdicts["join", "measure", "exact"] == 1
