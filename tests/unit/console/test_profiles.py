"""What `run --profile citation` requires and what it refuses."""

from typing import Any

import pytest

from schemas.report import Report
from schemas.validation_errors import DefinitionError
from services.console.choosing import (
    check_quiet,
    cited,
    cited_pipelines,
    cited_workload,
    runs_of,
)
from services.definitions.pipelines import load_pipeline
from services.definitions.workloads import load_workload
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit


def test_at_least_five_runs() -> None:
    assert (runs_of(None), runs_of(5), runs_of(9)) == (5, 5, 9)
    with pytest.raises(DefinitionError, match="--repeat must be at least 5"):
        runs_of(4)


def test_the_warm_up_is_long_and_the_rules_are_strict() -> None:
    found = cited_workload(load_workload("latency"))
    assert (found.phases.warm_up_s, found.phases.until_steady) == (600, True)
    assert (found.phases.measure_s, found.is_optimised) == (120, True)
    rules = found.validity
    assert (rules.must_be_steady, rules.must_be_undisturbed) == (True, True)
    assert (rules.max_others_share, rules.max_steal_share) == (0.05, 0.02)


@pytest.mark.parametrize("own", [0.0, 0.01])
def test_a_stricter_rule_of_the_workload_stays(own: float) -> None:
    workload = load_workload("latency")
    rules = {"max_others_share": own, "max_steal_share": own}
    validity = workload.validity.model_copy(update=rules)
    found = cited_workload(workload.model_copy(update={"validity": validity})).validity
    assert (found.max_others_share, found.max_steal_share) == (own, own)


def test_a_load_that_changes_cannot_be_steady() -> None:
    with pytest.raises(DefinitionError, match="the load must be the same at any time"):
        cited_workload(load_workload("single-burst"))


def test_a_pipelines_jvm_compiles_as_by_default_and_collects_with_g1() -> None:
    (found,) = cited_pipelines([load_pipeline("spark-realtime")])
    assert found.settings["quick_compiler"] is False
    assert found.settings["jvm_options"] == ("-XX:+UseG1GC",)
    assert cited_pipelines([found]) == (found,)


@pytest.mark.parametrize(
    "settings",
    [
        {"jvm_options": ("-Xss1m", "-XX:+UseZGC")},
        {"spark_conf": {"spark.driver.extraJavaOptions": "-Xss1m -XX:+UseZGC"}},
    ],
)
def test_a_pipeline_with_another_collector_is_refused(settings: dict[str, Any]) -> None:
    own = load_pipeline("spark-realtime").model_copy(update=settings)
    with pytest.raises(DefinitionError, match=r"spark-realtime has the option -XX:\+UseZGC\."):
        cited_pipelines([own])


def test_a_pipeline_without_such_settings_stays_as_it_is() -> None:
    pipeline = load_pipeline("calibration")
    assert cited_pipelines([pipeline]) == (pipeline,)


def test_a_machine_that_is_not_quiet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.console.choosing._shares", lambda _look_s: (0.41, 0.0))
    with pytest.raises(DefinitionError, match="processes used 41% of it and its host took 0% in 5"):
        check_quiet()
    monkeypatch.setattr("services.console.choosing._shares", lambda _look_s: (0.04, 0.01))
    check_quiet()


def runs(*valid: bool) -> list[Report]:
    """Reports of runs; the invalid ones were not steady."""
    return [
        report_of(
            {
                "valid": one,
                "invalid_reasons": [] if one else ["It was not steady."],
                "conclusion": {"clean": True},
            }
        )
        for one in valid
    ]


def test_five_valid_runs_are_to_be_cited() -> None:
    reports = runs(*[True] * 5)
    assert cited(reports[0], reports) == reports[0]


@pytest.mark.parametrize("valid", [[True] * 4, [True] * 5 + [False]])
def test_anything_less_is_not(valid: list[bool]) -> None:
    reports = runs(*valid)
    found = cited(reports[0], reports)
    good = sum(valid)
    assert found.valid is False
    assert found.invalid_reasons[0] == (
        f"Not to be cited: {good} of {len(valid)} runs are valid and clean; all must be, "
        "and at least 5."
    )
    assert found.invalid_reasons[1:] == ([] if all(valid) else ["It was not steady."])
