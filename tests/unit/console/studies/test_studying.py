"""How the verb `study` reports errors of other parts."""

import io
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from services.console.run_command import BusyError
from services.console.studies import studying
from services.console.studies.carry_out import Note, PlannedRun, open_notebook, plan_of
from services.console.studies.results import finished_runs
from services.readmodel.runs import UnknownRunError
from services.runtime.clickhouse import QueryError
from services.runtime.settings import EXIT_USAGE, ServiceSettings
from tests.unit.console.studies.reports import study

pytestmark = pytest.mark.unit

STUDY = """
name = "s"
title = "A study"
question = "Which?"
source = "A paper"
method = "By runs."
limits.small = {}

[[systems]]
name = "Fast"
pipeline = "no[/jar].toml"

[[experiments]]
name = "latency"
title = "Latency"
asks = "How long?"
paper = "Fig. 2"
workload = "latency"
stages = ["parse"]
figures = ["p50_ms"]
scales.small = {}
"""


def test_reasons_are_told_as_they_are(tmp_path: Path) -> None:
    def busy(*_given: object) -> dict[str, str]:
        raise BusyError("run [/R] is going on")

    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    out = io.StringIO()
    console = Console(file=out, markup=False, width=200)
    settings = ServiceSettings(data=tmp_path, store_url="http://127.0.0.1:9")
    code = studying.study(str(file), "small", tmp_path, settings, console, carry_out=busy)
    assert code == EXIT_USAGE
    assert "Fast is left out: " in out.getvalue()
    assert "no[/jar]" in out.getvalue()
    assert "run [/R] is going on" in out.getvalue()


def test_a_new_page_removes_the_old_pictures_of_its_experiments_and_no_others(
    tmp_path: Path,
) -> None:
    def nothing(*_given: object) -> dict[str, str]:
        return {}

    file = tmp_path / "s.toml"
    file.write_text(STUDY)
    own = ["s-small-latency.svg", "s-small-latency-1.svg", "s-small-latency-12.svg"]
    others = ["s-small-latency-big.svg", "s-small-small-latency.svg", "s-small.svg"]
    for name in (*own, *others):
        (tmp_path / name).write_text("")
    settings = ServiceSettings(data=tmp_path, store_url="http://127.0.0.1:9")
    studying.study(
        str(file), "small", tmp_path, settings, Console(quiet=True, markup=False), carry_out=nothing
    )
    assert sorted(each.name for each in tmp_path.glob("*.svg")) == sorted(others)


def test_only_a_run_that_the_store_does_not_know_is_forgotten(tmp_path: Path) -> None:
    def silent(_run: PlannedRun, _run_id: str) -> NoReturn:
        raise QueryError("The store does not answer.")

    def unknown(_run: PlannedRun, run_id: str) -> NoReturn:
        raise UnknownRunError(run_id)

    plan, notebook = plan_of(study(), "small"), open_notebook(tmp_path, "s", "small")
    key, note = plan.runs[0].key, Note("run-1", valid=True)
    notebook.add(key, note)
    with pytest.raises(QueryError):
        list(finished_runs(plan, notebook, silent))
    assert open_notebook(tmp_path, "s", "small").of(key) == [note]
    assert list(finished_runs(plan, notebook, unknown)) == []
    assert open_notebook(tmp_path, "s", "small").of(key) == []
