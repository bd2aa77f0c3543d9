"""Samples of offenders show values as their records have them, of every type that can be judged and
by every kind of oracle."""

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from schemas.domain import DomainSpec, InputSpec, StageSpec
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from tests.unit.evaluator.gem_packs import a_plan
from tests.unit.evaluator.records import FAR_MS, MEASURE_MS, PHASES, RUN_ID, START_MS, samples_of

pytestmark = pytest.mark.unit

TIME = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
VALUES = {
    "on": "boolean",
    "size": "int",
    "day": DATE,
}
VALUES |= {"total": "long", "share": "float", "level": "double", "name": "string"}
WINDOW = {"window_start": TIME, "window_end": TIME}
FIRSTS = [{"column": name, "function": "first", "of": [f"a.{name}"]} for name in VALUES]


def schema(name, columns, nullable=()):
    fields = [
        {"name": one, "type": ["null", kind] if one in nullable else kind}
        for one, kind in columns.items()
    ]
    return json.dumps({"type": "record", "name": name, "fields": fields})


HEAD = {"run_id": "string", "sequence": "long"}
AT = {"time": TIME, "scheduled_at": {"type": "long", "logicalType": "timestamp-micros"}}
STAGES = {
    "row": {"kind": "decode"},
    "pair": {"kind": "join", "aggregates": FIRSTS, "keys": ["flag", "number"]},
    "closed": {
        "kind": "aggregate",
        "aggregates": FIRSTS,
        "keys": ["flag", "number"],
        "window": {"size_s": 1, "slide_s": 1},
    },
    "counted": {
        "kind": "aggregate",
        "aggregates": FIRSTS,
        "keys": ["flag", "number"],
        "window": {"size_s": 1, "slide_s": 1},
        "complete": {"column": "size"},
    },
}
RECORDS = {
    "row": HEAD | {"time": TIME, "flag": "boolean", "number": "int"} | VALUES,
    "pair": {"run_id": "string", "time": TIME, "flag": "boolean", "number": "int"} | VALUES,
    "closed": {"run_id": "string", "flag": "boolean", "number": "int"} | WINDOW | VALUES,
    "counted": {"run_id": "string", "flag": "boolean", "number": "int"} | WINDOW | VALUES,
}
DOMAIN = DomainSpec(
    name="types",
    inputs=(InputSpec(name="a", topic="types.a", record="a", key="flag", event_time="time"),),
    stages=tuple(
        StageSpec(name=name, record=name, key="flag", reads=("a",), **stage)
        for name, stage in STAGES.items()
    ),
    schemas={
        "a": schema("a", HEAD | AT | {"flag": "boolean", "number": "int"} | VALUES),
        **{name: schema(name, columns, VALUES) for name, columns in RECORDS.items()},
    },
)
INPUT = {
    "run_id": RUN_ID,
    "sequence": 0,
    "time": START_MS,
    "scheduled_at": 1_000 * MEASURE_MS,
    "flag": True,
    "number": 7,
    "on": True,
    "size": 1,
    "day": 20_000,
    "total": 1 << 53 | 1,
    "share": 0.1,
    "level": 0.1,
    "name": "n",
}
SHOWN = {name: INPUT[name] for name in VALUES}
SPAN = {"window_start": START_MS, "window_end": START_MS + 1_000}


@dataclass
class Judged:
    """Verdicts and samples of outputs of one stage, whose inputs are INPUT."""

    stage: str
    verdicts: dict = field(default_factory=dict)
    samples: list = field(default_factory=list)

    @classmethod
    def of(cls, stage, *outputs, key=b"true"):
        plan = a_plan((stage,), DOMAIN)
        evaluation, judged = Evaluation(plan, PHASES), cls(stage)
        judged._add(evaluation, "types.a", DOMAIN.codec.encode("a", INPUT), key)
        for output in outputs:
            fields = {name: ({**INPUT, **SPAN} | output)[name] for name in RECORDS[stage]}
            value = DOMAIN.codec.encode(stage, fields)
            judged._add(evaluation, f"output.p.{stage}", value, key)
        evaluation.advance(FAR_MS, FAR_MS)
        events = list(evaluation.take_events())
        for _topic, event in events:
            for verdict in ("exact", "wrong", "missing", "unexpected"):
                if event.get(verdict):
                    judged.verdicts[verdict] = event[verdict]
        judged.samples = list(map(json.loads, samples_of(events)))
        return judged

    @staticmethod
    def _add(evaluation, topic, value, key):
        assert evaluation.add(RecordBatch(topic, np.array([MEASURE_MS]), [value], [key])) == []


every_stage = pytest.mark.parametrize("stage", STAGES)


def texts(value):
    """The JSON of a value, which tells true from 1."""
    return json.dumps(value, sort_keys=True)


@every_stage
def test_an_output_of_every_type_is_exact(stage):
    assert Judged.of(stage, {}).verdicts == {"exact": 1}


@every_stage
def test_a_wrong_output_shows_both_values_as_their_types_have_them(stage):
    spoilt = {
        "on": False,
        "size": 0,
        "day": 20_001,
        "total": 1 << 53,
        "share": 0.2,
        "level": 0.2,
        "name": "m",
    }
    judged = Judged.of(stage, spoilt)
    assert judged.verdicts == {"wrong": 1}
    (sample,) = judged.samples
    for name in VALUES:
        assert texts(sample["expected"][name]) == texts(SHOWN[name]), name
        assert texts(sample["actual"][name]) == texts(spoilt[name]), name
    assert texts(sample["flag"]) == "true"


@every_stage
@pytest.mark.parametrize("name", VALUES)
def test_null_is_neither_zero_nor_false(stage, name):
    judged = Judged.of(stage, {name: None})
    assert judged.verdicts == {"wrong": 1}
    (sample,) = judged.samples
    assert sample["actual"][name] is None
    assert texts(sample["expected"][name]) == texts(SHOWN[name])


@every_stage
def test_a_missing_output_shows_what_is_expected(stage):
    judged = Judged.of(stage)
    assert judged.verdicts == {"missing": 1}
    (sample,) = judged.samples
    assert texts({name: sample["expected"][name] for name in VALUES}) == texts(SHOWN)
    assert texts(sample["flag"]) == "true"


@pytest.mark.parametrize("stage", [one for one in STAGES if one != "row"])
def test_an_unexpected_output_shows_its_values(stage):
    judged = Judged.of(stage, {"flag": False})
    assert judged.verdicts == {"unexpected": 1, "missing": 1}
    (sample,) = [one for one in judged.samples if one["verdict"] == "unexpected"]
    assert texts({name: sample["actual"][name] for name in VALUES}) == texts(SHOWN)
    assert texts([sample["flag"], sample["number"]]) == "[false, 7]"


@every_stage
def test_a_number_that_is_not_finite_is_shown_in_valid_json(stage):
    (sample,) = Judged.of(stage, {"level": float("-inf")}).samples
    assert sample["actual"]["level"] == "-Infinity"


@every_stage
def test_a_wrong_key_shows_the_text_that_was_expected(stage):
    (sample,) = Judged.of(stage, {}, key=b"True").samples
    assert (sample["expected"]["key"], sample["actual"]["key"]) == ("true", "True")
