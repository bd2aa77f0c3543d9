"""The finished runs of a study as a file, and their use by a later command."""

import json

import pytest
from rich.console import Console

from schemas.report import Input, PipelineReport, Report, StageReport
from schemas.validation_errors import DefinitionError
from services.console.studies import studying
from services.console.studies.carry_out import Note, open_notebook, plan_of
from services.console.studies.results import (
    FinishedRun,
    StudyResults,
    finished_runs,
    read_results,
    take_runs,
)
from services.runtime.settings import ServiceSettings
from tests.unit.console.studies.reports import study

pytestmark = pytest.mark.unit

A_REPORT = Report(
    run_id="run-1",
    workload="latency",
    domain="traffic",
    valid=True,
    invalid_reasons=[],
    steady=True,
    environment={"processor": "Z80"},
    input=Input(records=10),
    pipelines={"p": PipelineReport(stages={"parse": StageReport(outputs=10)})},
)


def finished(key, run_id="run-1", valid=True):
    return FinishedRun(key=key, run_id=run_id, valid=valid, failed="", report=A_REPORT)


def results(*runs, name="s", scale="small"):
    return StudyResults(version=1, study=name, scale=scale, runs=list(runs))


def written(folder, given):
    path = folder / "earlier.json"
    path.write_text(json.dumps(given.as_json()))
    return path


def test_what_is_written_is_read(tmp_path):
    plan, notebook = plan_of(study(), "small"), open_notebook(tmp_path, "s", "small")
    notebook.add(plan.runs[0].key, Note("run-1", valid=True))
    notebook.add(plan.runs[1].key, Note("run-2", valid=False, failed="It was refused."))
    curves = {"parse": {"event_time": [(0, 2.5), (1, 30.0)]}}
    given = results(*finished_runs(plan, notebook, lambda _run, _run_id: (A_REPORT, curves)))
    (read,) = read_results([written(tmp_path, given)], "s", "small")
    assert read == given
    assert read.runs[0].curves == curves
    assert [(run.run_id, run.report is None) for run in given.runs] == [
        ("run-1", False),
        ("run-2", True),
    ]


def test_valid_runs_that_the_notebook_lacks_are_taken(tmp_path):
    plan, notebook = plan_of(study(), "small"), open_notebook(tmp_path, "s", "small")
    fast, slow = (run.key for run in plan.runs)
    notebook.add(fast, Note("own", valid=True))
    files = [
        results(finished(fast, "a"), finished(slow, "b", valid=False), finished("changed", "c")),
        results(finished(slow, "d"), finished(slow, "e")),
    ]
    taken = take_runs(files, plan, notebook)
    assert {run_id: run.report for run_id, run in taken.items()} == {"d": A_REPORT}
    assert (notebook.chosen(fast).run_id, notebook.chosen(slow).run_id) == ("own", "d")
    assert open_notebook(tmp_path, "s", "small").of(slow) == []


def test_runs_that_an_interrupted_command_has_taken_are_read_from_the_file_again(tmp_path):
    plan, notebook = plan_of(study(), "small"), open_notebook(tmp_path, "s", "small")
    fast, slow = (run.key for run in plan.runs)
    given = results(finished(fast, "a"))
    take_runs([given], plan, notebook)
    notebook.add(slow, Note("own", valid=True))  # which writes all notes
    later = open_notebook(tmp_path, "s", "small")
    taken = take_runs([given], plan, later)
    runs = finished_runs(plan, later, lambda _run, run_id: (taken[run_id].report, {}))
    assert [next(runs).run_id, [*taken]] == ["a", ["a"]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ('{"version": 2, "study": "s", "scale": "small", "runs": []}', "version"),
        ('{"version": 1, "study": "t", "scale": "small", "runs": []}', "of the study t"),
        ('{"version": 1, "study": "s", "scale": "full", "runs": []}', "at the scale full"),
        ('{"version": 1, "study": "s", "scale": "small", "runs": [{}]}', "runs.0.key"),
        (
            '{"version": 1, "study": "s", "scale": "small", "runs": [{"key": "k", "run_id": "r",'
            f' "valid": true, "curves": {{"": {{"pull_rate": [[0, 1{400 * "0"}]]}}}}}}]}}',
            "runs.0.curves",
        ),
    ],
)
def test_another_file_gives_a_sentence(tmp_path, text, reason):
    path = tmp_path / "earlier.json"
    path.write_text(text)
    with pytest.raises(DefinitionError, match=f"--from {path}: .*{reason}"):
        list(read_results([path], "s", "small"))
    with pytest.raises(DefinitionError, match="No such file"):
        list(read_results([tmp_path / "none"], "s", "small"))


def test_a_file_that_is_wrong_leaves_the_page_of_an_earlier_command(tmp_path):
    page = tmp_path / "stages-small.md"
    page.write_text("# A page")
    settings = ServiceSettings(data=tmp_path, store_url="http://127.0.0.1:9")
    console, wrong = Console(quiet=True), (tmp_path / "none",)
    with pytest.raises(DefinitionError):
        studying.study("stages", "small", tmp_path, settings, console, earlier=wrong)
    assert page.exists()
