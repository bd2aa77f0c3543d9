"""The studies of the project."""

import pytest

from services.console.studies.carry_out import plan_of
from services.definitions.domains import load_domain
from services.definitions.pipelines import names
from services.definitions.workloads import STUDIES_DIR, load_study

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("name", names(STUDIES_DIR))
def test_every_study_loads_under_its_own_name_with_runs_at_every_scale(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    assert {"small", "full"} <= set(study.scales)
    for scale in study.scales:
        assert plan_of(study, scale).runs


@pytest.mark.parametrize("name", names(STUDIES_DIR))
def test_every_stage_of_an_experiment_is_one_of_its_domain(name: str) -> None:
    for one in load_study(name).experiments:
        stages = load_domain(one.domain or "traffic").spec.stage_names
        assert set(one.stages) <= set(stages)
