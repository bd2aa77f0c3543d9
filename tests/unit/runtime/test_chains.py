"""Stages that read other stages than the domain declares."""

import pytest

from services.definitions.pipelines import rewired
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit


def test_a_window_over_a_join_takes_the_columns_that_the_join_publishes() -> None:
    domain = rewired(TRAFFIC, {"tumbling": "join", "revenue": "conversions"})
    assert [one.name for one in domain.chain("sliding")] == [
        "ingest", "parse", "join", "tumbling", "sliding",
    ]  # fmt: skip
    assert {one.column: one.of for one in domain.stage("tumbling").aggregates} == {
        "lanes": ("lane",),
        "accumulated_flow_vehicles_per_hour": ("flow_vehicles_per_hour",),
        "average_speed_km_per_hour": ("speed_km_per_hour",),
    }
    assert domain.stage("join") == TRAFFIC.stage("join")
    assert TRAFFIC.stage("tumbling").reads == ("parse",)


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        ({"tumbling": "joined"}, "reads: traffic has no stage 'joined' for tumbling"),
        ({"join": "parse"}, "reads: join has keys that parse does not publish"),
        ({"join": "sliding"}, "reads: join has keys that sliding does not publish"),
    ],
)
def test_what_a_stage_cannot_read_is_refused(reads: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        rewired(TRAFFIC, reads)


def test_a_source_that_the_other_stage_does_not_publish_as_it_is_is_refused() -> None:
    fields = TRAFFIC.model_dump()
    tumbling = next(one for one in fields["stages"] if one["name"] == "tumbling")
    tumbling["aggregates"][0]["of"] = ("flow.num_lanes",)  # for a join, the maximum of both
    reason = "^reads: tumbling needs flow.num_lanes, which join does not publish$"
    with pytest.raises(ValueError, match=reason):
        rewired(TRAFFIC.model_validate(fields), {"tumbling": "join"})
