"""The runs of a study at a scale."""

import pytest

from schemas.validation_errors import DefinitionError
from services.console.studies.carry_out import plan_of
from tests.unit.console.studies.reports import experiment, study

pytestmark = pytest.mark.unit


def test_all_stages_in_one_run_or_each_in_its_own():
    small, full = plan_of(study(), "small"), plan_of(study(), "full")
    assert [(run.pipeline.name, run.stages) for run in small.runs] == [
        ("spark-realtime", ("parse", "join")),
        ("spark-microbatch", ("parse", "join")),
    ]
    assert [run.stages for run in full.runs] == [("parse",), ("join",)] * 2


def test_a_scale_changes_parts_of_the_workload_only():
    (run, _other) = plan_of(study(), "small").runs
    assert run.workload.phases.measure_s == 7
    assert run.workload.phases.until_steady
    assert run.workload.load.rate_per_second == 400


def test_a_warm_up_in_seconds_replaces_one_until_all_is_steady():
    phases = {"warm_up_s": 3, "measure_s": 8}
    changed = experiment(scales={"small": {"workload": {"phases": phases}}})
    (run, _other) = plan_of(study(experiments=[changed]), "small").runs
    assert (run.workload.phases.warm_up_s, run.workload.phases.until_steady) == (3, False)


def test_other_settings_are_another_run():
    changed = experiment(scales={"small": {"workload": {"phases": {"measure_s": 8}}}})
    before = plan_of(study(), "small").runs[0].key
    assert plan_of(study(), "small").runs[0].key == before
    assert plan_of(study(experiments=[changed]), "small").runs[0].key != before


def test_a_system_whose_pipeline_is_not_there_is_left_out_with_the_reason():
    systems = [
        {"name": "Fast", "pipeline": "spark-realtime", "paper": "Quick"},
        {"name": "Gone", "pipeline": "no-such"},
    ]
    plan = plan_of(study(systems=systems), "small")
    assert [run.system.name for run in plan.runs] == ["Fast"]
    assert plan.left_out["Gone"].startswith("There is no pipeline 'no-such'; there are: ")


def test_only_the_systems_of_the_scale():
    changed = experiment(scales={"small": {"systems": ["Slow"]}})
    assert [run.system.name for run in plan_of(study(experiments=[changed]), "small").runs] == [
        "Slow"
    ]


def test_all_pipelines_may_have_other_settings_at_a_scale():
    limited = study(
        settings={"small": {"cores": 1, "driver_memory_mb": 2048}},
        systems=[
            {
                **{"name": "Fast", "pipeline": "spark-realtime", "paper": "Quick"},
                "settings": {"cores": 2},
            },
            {"name": "Slow", "pipeline": "spark-microbatch"},
        ],
    )
    pipelines = [run.pipeline for run in plan_of(limited, "small").runs]
    assert [(each.cores, each.settings["driver_memory_mb"]) for each in pipelines] == [
        (2, 2048),
        (1, 2048),
    ]
    assert {run.pipeline.cores for run in plan_of(limited, "full").runs} == {2, None}
    with pytest.raises(ValueError, match="settings: there is no scale 'tiny'"):
        study(settings={"tiny": {"cores": 1}})


def test_a_system_may_have_other_settings_in_a_study():
    settings = {"heap_mb": 2048, "for": {"throughput": {"linger_ms": 100}}}
    systems = [
        {"name": "As it is", "pipeline": "kafka-streams", "paper": "Quick"},
        {"name": "Chained", "pipeline": "kafka-streams", "settings": settings, "paper": "Slow"},
    ]
    usual, changed = plan_of(study(systems=systems), "small").runs
    assert changed.pipeline.settings == usual.pipeline.settings | {"heap_mb": 2048}
    assert changed.pipeline.purposes["throughput"]["linger_ms"] == 100
    assert changed.key != usual.key


def test_settings_for_another_purpose_are_the_same_run():
    def key(purpose, workload="latency"):
        settings = {"for": {purpose: {"linger_ms": 77}}}
        systems = [
            {"name": "A", "pipeline": "kafka-streams", "paper": "Quick", "settings": settings},
            {"name": "Slow", "pipeline": "spark-microbatch"},
        ]
        own = study(systems=systems, experiments=[experiment(workload=workload)])
        return plan_of(own, "small").runs[0].key

    assert key("throughput") == key("burst")
    assert key("throughput", "periodic-burst") != key("burst", "periodic-burst")


def test_a_stage_that_is_measured_apart_may_have_other_settings():
    slower = {"join": {"Slow": {"trigger_interval_ms": 3000}}}
    own = study(experiments=[experiment(stage_settings=slower)])
    intervals = {
        (run.system.name, run.stages): run.pipeline.settings.get("trigger_interval_ms")
        for run in plan_of(own, "full").runs
    }
    assert intervals["Slow", ("parse",)] == 1000
    assert intervals["Slow", ("join",)] == 3000
    together = plan_of(own, "small").runs[1]
    assert together.pipeline.settings["trigger_interval_ms"] == 1000
    with pytest.raises(ValueError, match="stage_settings: it has no stage 'sliding'"):
        study(experiments=[experiment(stage_settings={"sliding": {}})])


def test_an_experiment_may_change_a_system_alone():
    own = experiment(settings={"Slow": {"trigger_interval_ms": 0}})
    usual, changed = plan_of(study(experiments=[own]), "small").runs
    assert usual.pipeline == plan_of(study(), "small").runs[0].pipeline
    assert changed.pipeline.settings["trigger_interval_ms"] == 0
    assert plan_of(study(), "small").runs[1].pipeline.settings["trigger_interval_ms"] == 1000


def test_an_experiment_may_change_all_systems():
    own = experiment(settings={"*": {"cores": 1}, "Slow": {"cores": 0.5}})
    assert [each.pipeline.cores for each in plan_of(study(experiments=[own]), "small").runs] == [
        1,
        0.5,
    ]


@pytest.mark.parametrize(
    "settings", [{"heap": 1}, {"heap_mb": "much"}, {"for": {"burst": {"heap": 1}}}, {"stages": 3}]
)
def test_a_wrong_setting_of_a_system_names_the_system(settings):
    odd = {"name": "Odd", "pipeline": "kafka-streams", "paper": "Quick", "settings": settings}
    with pytest.raises(DefinitionError, match=r"^system Odd: [a-z._]+: .*\.$"):
        plan_of(study(systems=[odd]), "small")


def test_an_unknown_scale_and_a_wrong_workload_are_one_sentence():
    with pytest.raises(DefinitionError, match=r"^--scale: s has no 'huge'; it has: small, full\.$"):
        plan_of(study(), "huge")
    wrong = experiment(scales={"small": {"workload": {"phases": {"measure_s": -1}}}})
    with pytest.raises(DefinitionError, match=r"^experiment latency: phases\.measure_s"):
        plan_of(study(experiments=[wrong]), "small")
    unknown = experiment(stages=["parse", "joins"])
    with pytest.raises(DefinitionError, match=r"^experiment latency: .* has no stage 'joins'; it"):
        plan_of(study(experiments=[unknown]), "small")
