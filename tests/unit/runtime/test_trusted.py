"""What a command may make a service start or open."""

import shutil
from pathlib import Path

import pytest

from schemas.content import Content
from schemas.load import Constant
from schemas.pipeline import Pipeline
from schemas.validation_errors import DefinitionError
from schemas.workload import Workload
from services.definitions.domains import DOMAINS_DIR, Domain, load_domain
from services.definitions.pipelines import checked_pipeline, in_workload, load_pipeline
from services.definitions.requests import new_request
from services.definitions.trusted import (
    KEPT_DEFINITIONS,
    content_objection,
    keep_definitions,
    keep_suite,
    pipeline_objection,
    trusted_domain,
)
from services.definitions.workloads import WORKLOADS_DIR, load_suite, load_workload

pytestmark = pytest.mark.unit

OWN = load_pipeline("spark-realtime")
EVIL = "-XX:OnOutOfMemoryError=id"


def program(name: str, *command: str) -> Pipeline:
    return checked_pipeline(
        {"name": name, "summary": "-", "engine": "external", "command": command}
    )


def workload(path: str) -> Workload:
    content = Content(source="file", path=path)
    return Workload(name="w", summary="-", load=Constant(rate_per_second=1), content=content)


def test_a_pipeline_of_this_installation_is_started(tmp_path: Path) -> None:
    assert pipeline_objection(OWN, tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        {"jvm_options": (EVIL,)},
        {"spark_conf": {"spark.driver.extraClassPath": "/tmp/evil.jar"}},
        {"driver_memory_mb": 600},
    ],
)
def test_one_that_differs_in_any_setting_is_not(tmp_path: Path, change: dict[str, object]) -> None:
    assert pipeline_objection(OWN.model_copy(update=change), tmp_path) == (
        "pipelines/spark-realtime.toml on the agent's machine differs"
    )


def test_a_program_is_started_only_where_a_file_names_it(tmp_path: Path) -> None:
    text = 'name = "mine"\nsummary = "-"\nengine = "external"\ncommand = ["python"]\n'
    (tmp_path / "mine.toml").write_text(text)
    assert pipeline_objection(program("mine", "python"), tmp_path, tmp_path) is None
    said = pipeline_objection(program("mine", "sh", "-c", "true"), tmp_path, tmp_path)
    assert said == "pipelines/mine.toml on the agent's machine differs"
    said = pipeline_objection(OWN.model_copy(update={"name": "x"}), tmp_path, tmp_path)
    assert said == "pipelines/x.toml on the agent's machine does not exist"


def test_a_program_that_runs_already_needs_no_file(tmp_path: Path) -> None:
    asked = load_pipeline("external:flink", tmp_path)
    assert pipeline_objection(asked, tmp_path, tmp_path) is None


def test_what_the_owner_has_read_from_a_file_elsewhere_is_started(tmp_path: Path) -> None:
    mine = OWN.model_copy(update={"name": "mine", "jvm_options": (EVIL,)})
    assert pipeline_objection(mine, tmp_path) is not None
    keep_definitions(tmp_path, [], [mine])
    assert pipeline_objection(mine, tmp_path) is None
    assert pipeline_objection(mine.model_copy(update={"jvm_options": ()}), tmp_path) is not None


def test_a_pipeline_is_started_with_the_workers_that_a_workload_has(tmp_path: Path) -> None:
    skew, own = load_workload("skew"), load_pipeline("spark-realtime")
    (asked,) = new_request(skew, [own], (), load_domain("traffic").spec).pipelines
    assert asked.settings["shuffle_partitions"] == 2
    assert pipeline_objection(asked, tmp_path) is not None
    keep_definitions(tmp_path, [skew], [own])
    assert pipeline_objection(asked, tmp_path) is None
    assert pipeline_objection(own, tmp_path) is None


def test_only_a_file_that_this_machine_names_is_read(tmp_path: Path) -> None:
    asked = workload("/etc/passwd")
    assert content_objection(asked.content, tmp_path) == (
        "no workload on the generator's machine reads /etc/passwd with these options"
    )
    keep_definitions(tmp_path, [asked], [])
    assert content_objection(asked.content, tmp_path) is None
    assert content_objection(workload("/etc/shadow").content, tmp_path) is not None
    assert content_objection(Content(), tmp_path) is None


def test_a_file_that_a_workload_of_this_installation_names_is_read(tmp_path: Path) -> None:
    text = (WORKLOADS_DIR / "smoke.toml").read_text()
    text += '\n[content]\nsource = "file"\npath = "/data/mine.csv"\n'
    (tmp_path / "mine.toml").write_text(text)
    asked = Content(source="file", path="/data/mine.csv")
    assert content_objection(asked, tmp_path, tmp_path) is None
    columns = {"lane": "other"}
    assert content_objection(asked.model_copy(update={"columns": columns}), tmp_path, tmp_path)


def test_a_suite_keeps_all_that_its_steps_name(tmp_path: Path) -> None:
    suite = load_suite("default")
    keep_suite(tmp_path, suite)
    for step in suite.steps:
        for pipeline in step.pipelines:
            asked = in_workload(pipeline, step.workload)
            assert pipeline_objection(asked, tmp_path, tmp_path / "no pipelines") is None


def test_no_more_than_a_thousand_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT_DEFINITIONS + 5):
        keep_definitions(tmp_path, [workload(f"/{number}")], [])
    assert len(list((tmp_path / "definitions").iterdir())) == KEPT_DEFINITIONS
    assert content_objection(workload("/0").content, tmp_path) is not None
    assert content_objection(workload(f"/{KEPT_DEFINITIONS}").content, tmp_path) is None


def a_domain(tmp_path: Path) -> Domain:
    folder = tmp_path / "mine"
    shutil.copytree(DOMAINS_DIR / "gem_packs", folder)
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace('name = "gem_packs"', 'name = "mine"'))
    return load_domain(str(folder))


def test_a_domain_of_this_installation_is_used_whatever_the_windows(tmp_path: Path) -> None:
    asked = load_domain("gem_packs").spec.resolved({"revenue_s": 60, "revenue_slide_s": 60})
    assert trusted_domain(asked, tmp_path).folder == (DOMAINS_DIR / "gem_packs").resolve()


def test_a_domain_of_this_installation_is_used_however_far_changes_go_back(tmp_path: Path) -> None:
    windows = {"sliding_s": 11, "flow_change_short_s": 5, "flow_change_long_s": 10}
    asked = load_domain("traffic").spec.resolved(windows)
    assert trusted_domain(asked, tmp_path).folder == (DOMAINS_DIR / "traffic").resolve()


def test_a_domain_of_this_installation_is_used_with_topics_of_the_run(tmp_path: Path) -> None:
    workload = load_workload("smoke").model_copy(update={"partitions": 2})
    pipeline = load_pipeline("spark-realtime")
    request = new_request(workload, [pipeline], (), load_domain("traffic").spec)
    asked = request.domain_of(pipeline.name)
    assert asked is not None
    assert asked.topics[0].endswith(".2-partitions")
    assert trusted_domain(asked, tmp_path).folder == (DOMAINS_DIR / "traffic").resolve()


def test_a_domain_that_says_otherwise_than_its_folder_is_refused(tmp_path: Path) -> None:
    asked = load_domain("gem_packs").spec.model_copy(update={"summary": "another"})
    with pytest.raises(DefinitionError, match="domains/gem_packs on this machine differs"):
        trusted_domain(asked, tmp_path)


def test_a_folder_from_elsewhere_is_used_where_the_command_line_has_read_it(tmp_path: Path) -> None:
    mine = a_domain(tmp_path)
    with pytest.raises(DefinitionError, match="domains/mine on this machine does not exist"):
        trusted_domain(mine.spec, tmp_path)
    keep_definitions(tmp_path, [], [], [mine])
    assert trusted_domain(mine.spec, tmp_path) == mine


def test_a_folder_whose_code_has_changed_since_is_refused(tmp_path: Path) -> None:
    mine = a_domain(tmp_path)
    keep_definitions(tmp_path, [], [], [mine])
    (mine.folder / "records.py").write_text("print('evil')\n")
    with pytest.raises(DefinitionError, match="mine has changed since the command line read it"):
        trusted_domain(mine.spec, tmp_path)
