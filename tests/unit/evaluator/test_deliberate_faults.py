"""Deliberate faults of the load are not attributed to the pipeline."""

import json

import numpy as np
import pytest

from schemas import fault_rules
from schemas.codec import encode_json
from schemas.content import DUPLICATE, NONE, Faults
from schemas.protocol import Content
from services.evaluator.pairing.evaluation import Evaluation
from tests.traffic import CODEC
from tests.unit.evaluator.records import (
    FAR_MS,
    PHASES,
    START_MS,
    Output,
    Reading,
    Run,
    a_plan,
    parsed,
)

pytestmark = pytest.mark.unit

SEED = 7
HALF = Faults(duplicate=0.5)
KINDS = fault_rules.kinds(HALF, SEED, np.arange(20)).tolist()
TWICE, ONCE = KINDS.index(DUPLICATE), KINDS.index(NONE)


class FaultyRun(Run):
    """A run whose load has faults, or another wire format."""

    def __init__(self, *stages, **workload):
        super().__init__(*stages)
        plan = a_plan(stages)
        changed = plan.request.workload.model_copy(update=workload)
        request = plan.request.model_copy(update={"workload": changed, "seed": SEED})
        self.evaluation = Evaluation(plan.model_copy(update={"request": request}), PHASES)


def copies_of(sequence, outputs, before):
    """Verdicts if `outputs` outputs of a record are published, all read before or after its
    input."""
    reading = Reading("flow", START_MS + 2_100, 300, sequence)
    published = [
        Output("parse", START_MS + 2_200 + number, parsed(reading)) for number in range(outputs)
    ]
    run = FaultyRun("parse", faults=HALF)
    inputs = [reading] if sequence == ONCE else [reading, reading]
    run.add(*([*published, *inputs] if before else [*inputs, *published]))
    run.advance(FAR_MS)
    return {verdict: n for (_, _, verdict), n in run.totals().verdicts.items()}


@pytest.mark.parametrize("before", [True, False], ids=["outputs first", "inputs first"])
@pytest.mark.parametrize(
    ("sequence", "outputs", "verdicts"),
    [
        (ONCE, 1, {"exact": 1}),
        (ONCE, 2, {"exact": 1, "duplicate": 1}),
        (TWICE, 0, {"missing": 1}),
        (TWICE, 1, {"exact": 1}),
        (TWICE, 2, {"exact": 1}),
        (TWICE, 3, {"exact": 1, "duplicate": 1}),
    ],
)
def test_a_record_that_was_sent_twice_may_be_published_twice(sequence, outputs, verdicts, before):
    assert copies_of(sequence, outputs, before) == verdicts


def test_a_second_output_that_comes_alone_is_explained_and_a_third_is_not():
    reading = Reading("flow", START_MS + 2_100, 300, TWICE)
    run = FaultyRun("parse", faults=HALF)
    run.add(reading)
    for number in range(4):
        run.add(Output("parse", START_MS + 2_200 + number, parsed(reading)))
        run.read_all()
    assert run.totals().verdicts == {
        ("parse", "measure", "exact"): 1,
        ("parse", "measure", "duplicate"): 2,
    }


class Raw:
    """Any value on any topic."""

    def __init__(self, topic, appended_ms, encoded):
        self.topic, self.appended_ms, self.encoded = topic, appended_ms, encoded
        self.key_on_the_wire = b"a"


CUT = Reading("flow", 0, 300).encoded[:40]


@pytest.mark.parametrize("input_first", [True, False])
def test_the_raw_copy_of_a_value_that_does_not_decode_is_explained_by_it(input_first):
    pair = [
        Raw("traffic.flow", START_MS + 2_100, CUT),
        Raw("output.p.ingest", START_MS + 2_200, CUT),
    ]
    run = FaultyRun("ingest")
    run.add(*(pair if input_first else reversed(pair)))
    run.advance(FAR_MS)
    assert len(run.refused) == 2
    assert run.totals().verdicts == {}


def test_a_raw_copy_that_no_input_explains_is_unexpected_when_inputs_are_known_past_it():
    run = FaultyRun("ingest")
    run.add(Raw("output.p.ingest", START_MS + 2_200, CUT))
    run.advance(START_MS + 3_200)  # within the deadline of 1 s
    assert run.totals().verdicts == {}
    assert run.evaluation.open_in_measure() == 1
    run.advance(START_MS + 3_201)
    assert run.totals().verdicts == {("ingest", "measure", "unexpected"): 1}


def test_records_in_json_are_judged_like_the_same_records_in_avro():
    readings = [
        Reading("flow", START_MS + 2_100, 300, 0),
        Reading("speed", START_MS + 2_101, 80.5, 1),
    ]
    run = FaultyRun("ingest", "parse", content=Content(format="json"))
    for reading in readings:
        name = f"traffic_{reading.kind}"
        value = encode_json(name, CODEC.decode(reading.encoded)[1], CODEC)
        wrong = json.dumps(json.loads(value) | {"accuracy_percent": 1}).encode()
        run.add(
            Raw(reading.topic, reading.appended_ms, value),
            Raw(reading.topic, reading.appended_ms, value[:30]),
            Raw("output.p.ingest", START_MS + 2_110, value if reading.kind == "flow" else wrong),
            Output("parse", START_MS + 2_111, parsed(reading)),
        )
    run.advance(FAR_MS)
    assert len(run.refused) == 2
    assert run.totals().verdicts == {
        ("ingest", "measure", "exact"): 1,
        ("ingest", "measure", "wrong"): 1,
        ("parse", "measure", "exact"): 2,
    }


def test_instances_that_share_the_partitions_find_together_what_one_finds():
    sites = ["a", "b", "c", "d"]
    records = []
    for number, site in enumerate(sites):
        flow = Reading("flow", START_MS + 2_000 + number, 10 * number, 2 * number, site=site)
        speed = Reading("speed", START_MS + 2_001 + number, 50.0, 2 * number + 1, site=site)
        again = 1 + number % 2
        outputs = [Output("parse", START_MS + 2_050, parsed(flow))] * again
        records.append([flow, speed, *outputs])

    def verdicts(shares):
        total = {}
        for share in shares:
            run = FaultyRun("parse")
            run.add(*(record for index in share for record in records[index]))
            run.advance(FAR_MS)
            for where, count in run.totals().verdicts.items():
                total[where] = total.get(where, 0) + count
        return total

    one = verdicts([range(4)])
    assert one == verdicts([[0, 2], [1, 3]]) == verdicts([[0], [1], [2], [3]])
    assert one == {
        ("parse", "measure", "exact"): 4,
        ("parse", "measure", "duplicate"): 2,
        ("parse", "measure", "missing"): 4,
    }
