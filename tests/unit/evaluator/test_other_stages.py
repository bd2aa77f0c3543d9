"""Stages that no domain of the project has: combinations of kinds that the evaluator judges or
rejects. Traffic and gem_packs with one additional stage each, and literal outputs."""

import json

import pytest

from schemas.domain import DomainSpec
from services.evaluator.columnar.column_mapping import NotJudgedError
from services.evaluator.pairing.evaluation import Evaluation
from tests.traffic import TRAFFIC
from tests.unit.evaluator import gem_packs
from tests.unit.evaluator.gem_packs import GEM_PACKS, IN_SECONDS, Event, Said
from tests.unit.evaluator.outputs import three_seconds
from tests.unit.evaluator.records import FAR_MS, PHASES, RUN_ID, START_MS, Reading, Run

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("both_forms_of_groups")]

WINDOW = {"window_start": "long", "window_end": "long"}
SITE = {"run_id": "string", "measurement_id": "string"}


def with_stage(domain, columns, **stage):
    """A domain with one additional stage, whose record has these columns."""
    fields = [{"name": name, "type": kind} for name, kind in columns.items()]
    schema = {"type": "record", "name": "other", "fields": fields}
    changed = domain.model_dump()
    changed["stages"] = [*changed["stages"], {"name": "other", "record": "other", **stage}]
    changed["schemas"] = changed["schemas"] | {"other": json.dumps(schema)}
    return DomainSpec.model_validate(changed)


class OtherSaid(Said):
    """An output of the stage `other`."""

    domain: DomainSpec

    @property
    def encoded(self):
        return self.domain.codec.encode("other", self.fields)

    @property
    def key_on_the_wire(self):
        return str(self.fields[self.domain.stage("other").key]).encode()


def verdicts(domain, inputs, *outputs, after_ms=8_000):
    """Verdicts of outputs of the stage `other`."""
    run = Run()
    run.evaluation = Evaluation(gem_packs.a_plan(("other",), domain), PHASES)
    OtherSaid.domain = domain
    run.add(*inputs)
    run.add(*(OtherSaid("other", START_MS + after_ms, {"run_id": RUN_ID} | one) for one in outputs))
    run.advance(FAR_MS)
    return {verdict: n for (_, _, verdict), n in run.totals().verdicts.items()}


def window(start_s, size_s=1):
    """Columns of a window."""
    start_ms = START_MS + 1_000 * start_s
    return {"window_start": start_ms, "window_end": start_ms + 1_000 * size_s}


SECONDS = [*three_seconds((100, 200, 300), (80.0, 50.0, 60.0))]


def test_a_filter_of_a_complete_window_keeps_what_its_condition_says():
    busy = with_stage(
        TRAFFIC,
        SITE | WINDOW | {"accumulated_flow_vehicles_per_hour": "long"},
        kind="filter",
        reads=["tumbling"],
        key="measurement_id",
        where=[{"column": "accumulated_flow_vehicles_per_hour", "operator": ">", "value": 150}],
    )
    said = [
        {"measurement_id": "a", "accumulated_flow_vehicles_per_hour": flow} | window(second)
        for second, flow in enumerate((100, 200, 301))
    ]
    assert verdicts(busy, SECONDS, *said[1:]) == {"late": 1, "wrong": 1}
    assert verdicts(busy, SECONDS, said[0]) == {"unexpected": 1, "missing": 2}


def test_a_table_over_a_join_and_a_filter_by_its_column():
    named = with_stage(
        TRAFFIC,
        SITE | {"lane": "string", "observed_at": "long", "side": "string"},
        kind="lookup",
        reads=["join"],
        key="measurement_id",
        table={"key": "lane", "columns": ["side"], "rows": {"lane1": ["left"], "lane2": ["right"]}},
    )
    other = Reading("flow", START_MS + 2_000, 5, 90, lane="lane3")
    speed = Reading("speed", START_MS + 2_000, 5.0, 91, lane="lane3")
    said = [
        {
            "measurement_id": "a",
            "lane": "lane1",
            "observed_at": START_MS + 1_000 * second,
            "side": side,
        }
        for second, side in enumerate(("left", "right"))
    ]
    found = verdicts(named, [*SECONDS, other, speed], *said, after_ms=4_000)
    assert found == {"late": 1, "wrong": 1, "missing": 1}


def test_a_table_by_a_number_that_is_also_a_column_of_the_output():
    roads = with_stage(
        TRAFFIC,
        SITE | {"sequence": "long", "num_lanes": "int", "road": "string"},
        kind="lookup",
        reads=["parse"],
        key="measurement_id",
        table={"key": "num_lanes", "columns": ["road"], "rows": {"1": ["path"], "2": ["street"]}},
    )
    inputs = [
        Reading("flow", START_MS + 2_000, 5, number, lanes=lanes)
        for number, lanes in enumerate((1, 2, 3))
    ]
    said = [
        {"measurement_id": "a", "sequence": number, "num_lanes": number + 1, "road": road}
        for number, road in enumerate(("path", "street"))
    ]
    assert verdicts(roads, inputs, *said, after_ms=2_500) == {"exact": 2}
    wrong = said[1] | {"num_lanes": 1}
    assert verdicts(roads, inputs, said[0], wrong, after_ms=2_500) == {"exact": 1, "wrong": 1}


def test_a_sliding_window_that_is_complete_with_all_functions():
    # Names of columns that the state has too.
    functions = {
        "limit": ("min", "flow.flow_vehicles_per_hour", "int"),
        "latest_ms": ("max", "speed.speed_km_per_hour", "double"),
        "first": ("first", "flow.lane", "string"),
        "number": ("count", "flow.sequence", "long"),
        "kinds": ("count_distinct", "flow.flow_vehicles_per_hour", "long"),
        "total": ("sum", "speed.speed_km_per_hour", "double"),
    }
    every = with_stage(
        TRAFFIC,
        SITE | WINDOW | {name: kind for name, (_, _, kind) in functions.items()},
        kind="aggregate",
        reads=["parse"],
        key="measurement_id",
        keys=["measurement_id"],
        window={"size_s": 2, "slide_s": 1},
        complete={"column": "num_lanes"},
        once_per=["lane"],
        aggregates=[
            {"column": name, "function": function, "of": [of]}
            for name, (function, of, _) in functions.items()
        ],
    )
    inputs = [*three_seconds((100, 200, 200), (80.0, 50.0, 60.0))]
    head = {"measurement_id": "a", "first": "lane1", "number": 2}
    early = {"limit": 100, "latest_ms": 80.0, "kinds": 2, "total": 130.0} | window(0, 2)
    late = {"limit": 200, "latest_ms": 60.0, "kinds": 1, "total": 110.0} | window(1, 2)
    assert verdicts(every, inputs, head | early, head | late, after_ms=4_105) == {
        "exact": 1,
        "late": 1,
    }
    assert verdicts(every, inputs, head | late | {"kinds": 2}) == {"wrong": 1, "missing": 1}


def test_of_two_records_of_one_millisecond_the_first_is_the_one_that_was_read_first():
    first = with_stage(
        GEM_PACKS,
        {"run_id": "string", "geo": "string"} | WINDOW | {"price": "double"},
        kind="aggregate",
        reads=["parse"],
        key="geo",
        keys=["geo"],
        window={"size_s": 2, "slide_s": 1},
        aggregates=[{"column": "price", "function": "first", "of": ["purchases.price"]}],
    )
    inputs = [
        Event("purchases", START_MS + 1_000 + later_ms, price, number, START_MS + 1_000 * second)
        for number, (later_ms, second, price) in enumerate(
            [(0, 1, 15.0), (0, 0, 10.0), (9, 9, 1.0)]
        )
    ]
    said = {"geo": "g000", "price": 15.0} | window(0, 2)
    assert verdicts(first, inputs, said, after_ms=1_100)["exact"] == 1


def test_a_change_between_closed_windows_is_null_against_one_that_has_nothing():
    change = with_stage(
        IN_SECONDS.domain(),
        {"run_id": "string", "geo": "string"} | WINDOW | {"rise": ["null", "double"]},
        kind="change",
        reads=["average"],
        key="geo",
        keys=["geo"],
        window={"size_s": 2, "slide_s": 1},
        changes=[{"column": "rise", "of": "average_price", "back": 1}],
    )
    inputs = [
        Event("purchases", START_MS + 1_000 + 10 * number, price, number, START_MS + 1_000 * second)
        for number, (second, price) in enumerate([(0, 10.0), (1, 15.0), (3, 15.0), (9, 1.0)])
    ]
    said = [
        {"geo": "g000", "rise": None} | window(-1, 2),
        {"geo": "g000", "rise": 0.5} | window(0, 2),
    ]
    said.append({"geo": "g000", "rise": None} | window(2, 2))
    found = verdicts(change, inputs, *said, after_ms=1_100)
    assert found == {"exact": 3, "missing": 1}
    assert verdicts(change, inputs, said[1] | {"rise": 0.4}, after_ms=1_100)["wrong"] == 1


@pytest.mark.parametrize("reads", ["join", "average"])
def test_what_it_cannot_judge_is_refused_by_name(reads):
    domain = TRAFFIC if reads == "join" else GEM_PACKS
    odd = with_stage(
        domain,
        SITE | WINDOW,
        kind="aggregate",
        reads=[reads],
        key="measurement_id",
        keys=["measurement_id"],
        window={"size_s": 1, "slide_s": 1},
        aggregates=[{"column": "measurement_id", "function": "count", "of": ["measurement_id"]}],
    )
    with pytest.raises(NotJudgedError, match="cannot judge the stage other: a aggregate of a"):
        Evaluation(gem_packs.a_plan(("other",), odd), PHASES)
