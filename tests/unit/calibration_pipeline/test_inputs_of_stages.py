"""Which records a stage of the calibration uses: those of its inputs that have its columns."""

import pytest

from schemas.domain import DomainSpec
from services.calibration_pipeline.kinds import Row
from services.calibration_pipeline.stages import kind_of
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

OF_FLOW = "flow_vehicles_per_hour"  # a column that records of speed do not have
COUNT = {"column": "sequence", "function": "count", "of": ["flow.sequence"]}
WINDOW = {"window": {"size_s": 1, "slide_s": 1}, "keys": [OF_FLOW]}


def kind(**stage):
    """The implementation of an additional stage."""
    fields = TRAFFIC.model_dump()
    spec = {"name": "other", "record": "output_parse", "key": "measurement_id", "reads": ["parse"]}
    fields["stages"] = [*fields["stages"], spec | stage]
    domain = DomainSpec.model_validate(fields)
    return kind_of(domain.stage("other"), domain, 10_000)


def record(source, **fields):
    """A record of one site and lane."""
    given = {"run_id": "r", "measurement_id": "a", "lane": "1", "num_lanes": 1, "sequence": 0}
    return Row(given | fields, source, 7_000, 10, 10, 0)


FLOW, SPEED = record("flow", **{OF_FLOW: 60}), record("speed", speed_km_per_hour=50.0)


@pytest.mark.parametrize(
    "stage",
    [
        {"kind": "filter", "where": [{"column": OF_FLOW, "operator": ">", "value": 50}]},
        {
            "kind": "lookup",
            "table": {"key": OF_FLOW, "columns": ["road"], "rows": {"60": ["a"], "None": ["b"]}},
        },
        {
            "kind": "aggregate",
            **{"key": OF_FLOW, "aggregates": [COUNT], "complete": {"column": "num_lanes"}},
            **WINDOW,
        },
    ],
    ids=["filter", "lookup", "key"],
)
def test_records_of_an_input_without_the_column_are_dropped(stage):
    tested = kind(**stage)
    assert tested.add(SPEED) == []
    assert len(tested.add(FLOW)) == 1


def test_a_null_satisfies_no_condition():
    condition = {"column": OF_FLOW, "operator": "!=", "value": 50}
    assert kind(kind="filter", where=[condition]).add(record("flow", **{OF_FLOW: None})) == []


def test_a_join_does_not_use_records_of_other_inputs():
    columns = [
        {"column": one.rpartition(".")[2], "function": "first", "of": [one]}
        for one in ("flow.flow_vehicles_per_hour", "speed.speed_km_per_hour")
    ]
    keys = ["measurement_id", "lane"]
    join = kind(kind="join", keys=keys, aggregates=columns)
    other = record("other")
    other.fields.pop("lane")
    assert join.add(other) == join.add(record("other")) == join.add(FLOW) == []
    assert len(join.add(SPEED)) == 1
