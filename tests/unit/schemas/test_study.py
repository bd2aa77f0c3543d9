"""A contradictory study is rejected with the location of the error."""

import pytest
from pydantic import ValidationError

from tests.unit.console.studies.reports import experiment, study

pytestmark = pytest.mark.unit

NOWHERE = {"system": "Ghost", "stage": "parse", "where": "§1", "values": {}}
NO_CELL = {"system": "Quick", "stage": "sliding", "where": "§1", "values": {}}
SCORE = {
    "workload": "w",
    "factor": "f",
    "experiment": "latency",
    "figure": "p99_ms",
    "stages": ["parse"],
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experiments": [experiment(), experiment()]}, "must be unique"),
        ({"experiments": [experiment(scales={"huge": {}})]}, "limits has no scale 'huge'"),
        (
            {"experiments": [experiment(scales={"small": {"systems": ["Nobody"]}})]},
            "there is no system 'Nobody'",
        ),
        (
            {"experiments": [experiment(paper_values=[NOWHERE])]},
            "the paper has no system 'Ghost'",
        ),
        ({"experiments": [experiment(paper_values=[NO_CELL])]}, "no cell holds a value of Quick"),
        ({"scores": [SCORE | {"experiment": "other"}]}, "there is no experiment 'other'"),
        ({"scores": [SCORE | {"stages": ["sliding"]}]}, "latency has no such stages"),
        ({"scores": [SCORE | {"figure": "p50_ms", "systems": ["X"]}]}, "there is no system 'X'"),
        ({"scores": [SCORE | {"figure": "mean_ms"}]}, "latency has no such figure"),
    ],
)
def test_a_contradiction_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        study(**changes)
