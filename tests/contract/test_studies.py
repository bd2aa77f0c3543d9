"""The studies that come with the project."""

import pytest

from services.console.studies.plan import plan_of
from services.runtime.definitions import STUDIES_DIR, load_study, names
from services.runtime.domains import load_domain

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


def test_figures_of_the_papers() -> None:
    ospbench = {
        (one.name, value.system, value.stage): value.values
        for one in load_study("ospbench").experiments
        for value in one.paper_values
    }
    assert ospbench["latency", "Kafka Streams", "join"] == {"p50_ms": 2, "p99_ms": 30}
    assert ospbench["single-burst", "Flink", "tumbling"] == {
        "first_output_s": 16,
        "caught_up_s": 81,
    }
    (aggregation, *_others) = load_study("karimov").experiments
    flink = next(one for one in aggregation.paper_values if one.system == "Flink")
    assert flink.values["sustainable_per_second"] == 1_200_000
    assert flink.values["event_time_p99_ms"] == 2_000
