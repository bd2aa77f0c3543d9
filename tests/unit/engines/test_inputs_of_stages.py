"""Which rows a stage of a Python engine uses: those of its inputs that have its columns, and those
derived from several records."""

import json
from pathlib import Path
from typing import Any

import pytest
from stages.closing import Closed
from stages.flow import Flow
from stages.kinds import Counted, Join, Kept, WindowJoin
from stages.records import Row

from schemas.domain import DomainSpec
from services.definitions.pipelines import rewired
from tests.unit.engines.rows import (
    BASE_MS,
    GEM_PACKS,
    TRAFFIC,
    flow,
    kind_of,
    observed,
    plan_of,
    sold,
    speed,
)

pytestmark = pytest.mark.unit

OF_FLOW = "flow_vehicles_per_hour"  # a column that records of speed do not have
WINDOW: dict[str, Any] = {"window": {"size_s": 1, "slide_s": 1}}


def with_stage(**stage: Any) -> DomainSpec:
    """The domain with one more stage."""
    fields = TRAFFIC.model_dump()
    fields["stages"] = [*fields["stages"], {"name": "other", "record": "output_parse"} | stage]
    return DomainSpec.model_validate(fields)


def with_third_input(domain: DomainSpec) -> DomainSpec:
    """The domain with an input that only copies use."""
    fields = domain.model_dump()
    third = fields["inputs"][0] | {"name": "third", "topic": "third"}
    fields["inputs"] = [*fields["inputs"], third]
    for stage in fields["stages"]:
        if stage["kind"] == "copy":
            stage["reads"] = [*stage["reads"], "third"]
    return DomainSpec.model_validate(fields)


@pytest.mark.parametrize(
    "stage",
    [
        {"kind": "filter", "where": [{"column": OF_FLOW, "operator": ">", "value": 50}]},
        {
            "kind": "lookup",
            "table": {"key": OF_FLOW, "columns": ["road"], "rows": {"60": ["a"], "None": ["b"]}},
        },
    ],
    ids=["filter", "lookup"],
)
def test_records_of_an_input_without_the_column_are_dropped(
    tmp_path: Path, stage: dict[str, Any]
) -> None:
    domain = with_stage(reads=["parse"], key="measurement_id", **stage)
    kind = kind_of(domain, tmp_path, "other")
    assert len(kind.add(flow(1, 0, 60))) == 1
    assert kind.add(speed(1, 0, 60.0)) == []
    assert kind.add(observed("flow", 1, 0, flow_vehicles_per_hour=None)) == []


@pytest.mark.parametrize("complete", [None, {"column": "num_lanes"}], ids=["closed", "counted"])
def test_a_stage_may_be_keyed_by_a_column_that_only_its_own_input_has(
    tmp_path: Path, complete: dict[str, Any] | None
) -> None:
    domain = with_stage(
        kind="aggregate",
        reads=["parse"],
        key=OF_FLOW,
        keys=[OF_FLOW],
        complete=complete,
        aggregates=[{"column": "sequence", "function": "count", "of": ["flow.sequence"]}],
        **WINDOW,
    )
    plan = plan_of(domain, tmp_path, "other")
    stages = Flow(plan)
    assert isinstance(stages.stages[-1].kind, Counted if complete else Closed)
    common = {"run_id": "r", "measurement_id": "A", "lane": "1", "num_lanes": 2}
    for topic, record in (
        (TRAFFIC.topics[1], "traffic_speed"),
        (TRAFFIC.topics[0], "traffic_flow"),
    ):
        value = json.dumps(dict.fromkeys(plan.records[record].columns, 1) | common).encode()
        assert stages.read(topic, b"A", value, BASE_MS) == []
    assert list(stages.stages[-1]._states) == [("r", 1)]


def test_a_join_does_not_use_records_of_an_input_that_it_does_not_join(tmp_path: Path) -> None:
    join = kind_of(with_third_input(TRAFFIC), tmp_path, "join")
    assert isinstance(join, Join)
    assert join.inputs == ["flow", "speed"]
    assert [join.takes(row) for row in (flow(1, 0, 1), speed(1, 0, 1.0))] == [True, True]
    assert not join.takes(flow(1, 0, 1)._replace(source="third"))


def test_a_window_join_does_not_use_records_of_other_inputs(tmp_path: Path) -> None:
    join = kind_of(with_third_input(GEM_PACKS), tmp_path, "conversions")
    assert isinstance(join, WindowJoin)
    taken = [join.takes(sold(0, 1)._replace(source=of)) for of in ("purchases", "ads", "third")]
    assert taken == [True, True, False]
    assert not join.takes(sold(0, 1)._replace(fields={"run_id": "r", "gem_pack_id": 7}))


def test_a_counted_window_over_a_join_counts_each_pair_for_both_inputs(tmp_path: Path) -> None:
    window = kind_of(rewired(TRAFFIC, {"tumbling": "join"}), tmp_path, "tumbling")
    assert isinstance(window, Counted)

    def pair(lane: int) -> Row:
        values = {"flow_vehicles_per_hour": 100 * lane, "speed_km_per_hour": 30.0 * lane}
        return observed("", lane, 0, **values)

    kept = Kept()
    assert window.takes(pair(1))
    assert window.add(kept, pair(1)) == window.add(kept, pair(1)) == []
    (row,) = window.add(kept, pair(2))
    assert row.fields["accumulated_flow_vehicles_per_hour"] == 300
    assert row.fields["average_speed_km_per_hour"] == 45.0
    assert row.fields["lanes"] == 2
