"""An invalid workload or pipeline gives one sentence with the file, the field and the allowed
values."""

import pytest

from schemas.validation_errors import DefinitionError
from services.definitions.pipelines import defined_in, load_pipeline, load_pipelines, names
from services.definitions.workloads import load_suite, load_workload
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit

WORKLOAD = 'name = "small"\nsummary = "-"\n[load]\nrate_per_second = 5\n'


def write(directory, text, name="small"):
    path = directory / f"{name}.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(directory, name="small"):
    with pytest.raises(DefinitionError) as refused:
        load_workload(name, directory)
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_a_workload_is_found_by_its_name_or_its_path(tmp_path):
    path = write(tmp_path, WORKLOAD)
    assert load_workload("small", tmp_path).load.rate_per_second == 5
    assert load_workload(str(path)) == load_workload("small", tmp_path)
    assert names(tmp_path) == ("small",)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    write(tmp_path, WORKLOAD)
    write(tmp_path, WORKLOAD, "latency")
    assert refusal(tmp_path, "latencie") == (
        "There is no workload 'latencie'; there are: latency, small. Did you mean latency?"
    )
    assert refusal(tmp_path, "zzz") == "There is no workload 'zzz'; there are: latency, small."


def test_an_unknown_pipeline_is_called_a_pipeline(tmp_path):
    with pytest.raises(DefinitionError, match=r"^There is no pipeline 'x'; there are none\.$"):
        load_pipeline("x", tmp_path)
    with pytest.raises(DefinitionError, match=r"^There is no pipeline 'x'; there are: bytewax, "):
        load_pipeline("x")
    with pytest.raises(DefinitionError, match=r"^\./x\.toml is not a file\.$"):
        load_pipeline("./x.toml")


def test_two_pipelines_of_one_name_are_refused(tmp_path):
    text = (ROOT / "pipelines" / "spark-microbatch.toml").read_text()
    path = write(tmp_path, text, "mine")
    with pytest.raises(DefinitionError) as refused:
        load_pipelines([str(path), "spark-microbatch"])
    assert str(refused.value) == (
        f"Pipelines of one run need different names; {path} and spark-microbatch have"
        " name = 'spark-microbatch'."
    )
    write(tmp_path, text.replace('name = "spark-microbatch"', 'name = "mine"'), "mine")
    found = load_pipelines([str(path), "spark-microbatch"])
    assert [pipeline.name for pipeline in found] == ["mine", "spark-microbatch"]


def test_a_definition_is_where_its_name_or_its_path_says():
    assert defined_in("mine", ROOT / "pipelines") == "pipelines/mine.toml"
    assert defined_in("path/to/my.toml", ROOT / "pipelines") == "path/to/my.toml"


@pytest.mark.parametrize(
    ("why", "text", "reason"),
    [
        (
            "nothing is measured",
            WORKLOAD + "[phases]\nmeasure_s = 0\n",
            "phases.measure_s: It must be at least 1.",
        ),
        ("no summary", WORKLOAD.replace('summary = "-"', ""), "summary: It is missing."),
        (
            "a field nobody knows",
            WORKLOAD + "rte = 1\n",
            "load.rte: There is no such field.",
        ),
        (
            "a stage that no domain can have",
            'stages = ["join", "Sum"]\n' + WORKLOAD,
            "stages.1: Allowed: 1 to 32 characters of a-z 0-9 _, the first of a-z.",
        ),
    ],
    ids=["out of bounds", "missing", "unknown field", "forbidden spelling"],
)
def test_a_file_that_does_not_fit_is_named_with_its_field(why, text, reason, tmp_path):
    path = write(tmp_path, text)
    assert refusal(tmp_path) == f"{path}: {reason}", why


def test_the_records_of_a_workload_are_found_beside_its_file(tmp_path, monkeypatch):
    content = '[content]\nsource = "file"\npath = "data/mine.csv"\ncopies = 2\n'
    (tmp_path / "mine").mkdir()
    path = write(tmp_path / "mine", WORKLOAD + content)
    records = tmp_path / "mine" / "data" / "mine.csv"
    assert refusal(tmp_path / "mine") == f"{path}: content.path: {records} is not a file or folder."
    records.parent.mkdir()
    records.touch()
    monkeypatch.chdir(tmp_path)
    for found in (load_workload("mine/small.toml"), load_workload("small", tmp_path / "mine")):
        assert (found.content.path, found.content.copies) == (str(records), 2)
        assert "path" in found.content.model_fields_set
    write(tmp_path / "mine", WORKLOAD + content.replace("data/mine.csv", "data"))
    folder = load_workload("mine/small.toml").content.path
    assert folder == str(records.parent)
    write(tmp_path, WORKLOAD + content.replace("data/mine.csv", "9" * 5_000))
    assert "File name too long" in refusal(tmp_path)
    write(tmp_path, WORKLOAD + content.replace("data/mine.csv", "/nowhere.csv"))
    assert load_workload("small", tmp_path).content.path == "/nowhere.csv"


@pytest.mark.parametrize("text", ["name = ", b"name = '\xff'", "[load\n"])
def test_a_file_that_is_not_toml_is_named(text, tmp_path):
    path = write(tmp_path, text)
    assert refusal(tmp_path).startswith(f"{path} is not valid TOML: ")


def test_a_suite_may_leave_a_rate_to_what_will_be_known_or_give_it(tmp_path):
    text = """
name = "s"
summary = "-"
[[steps]]
workload = "at-90-percent"
"""
    (tmp_path / "s.toml").write_text(text)
    (step,) = load_suite("s", tmp_path).steps
    assert step.workload.sustainable_share == 0.9
    sustainable = "at-90-percent at 90% of the sustainable rate on spark-microbatch (parse)"
    assert step.label == sustainable
    (tmp_path / "s.toml").write_text(text + "rates = [500]\n")
    (step,) = load_suite("s", tmp_path).steps
    assert (step.workload.load.rate_per_second, step.workload.sustainable_share) == (500, None)


def test_a_suite_checks_the_options_of_the_content_of_its_workloads(tmp_path):
    path = write(tmp_path, WORKLOAD + "[content]\ncopies = 2\n")
    step = f'[[steps]]\nworkload = "{path}"\n'
    (tmp_path / "s.toml").write_text(f'name = "s"\nsummary = "-"\n{step}')
    with pytest.raises(DefinitionError, match=r"small\.toml: content\.copies applies only to a"):
        load_suite("s", tmp_path)


def test_a_step_of_a_suite_has_the_pipelines_of_its_workload_unless_it_names_others(tmp_path):
    steps = '[[steps]]\nworkload = "compare"\n[[steps]]\nworkload = "latency"\n'
    steps += '[[steps]]\nworkload = "calibration"\npipelines = ["spark-microbatch"]\n'
    (tmp_path / "s.toml").write_text(f'name = "s"\nsummary = "-"\n{steps}')
    named = [[one.name for one in step.pipelines] for step in load_suite("s", tmp_path).steps]
    assert named == [
        ["spark-realtime", "spark-microbatch"],
        ["spark-realtime"],
        ["spark-microbatch"],
    ]
