"""How the verb `study` reports errors of other parts."""

import io
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from services.console.run_command import BusyError
from services.console.studies import studying
from services.console.studies.carry_out import Note, open_notebook, plan_of
from services.readmodel import runs
from services.runtime.clickhouse import QueryError
from services.runtime.settings import EXIT_USAGE, ServiceSettings
from tests.unit.console.studies.reports import study

pytestmark = pytest.mark.unit


def test_reasons_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def busy(*_given: object) -> None:
        raise BusyError("run [/R] is going on")

    plan = replace(plan_of(study(), "small"), left_out={"Fast": "it has no [/jar]"})
    monkeypatch.setattr(studying, "load_study", lambda _name: study())
    monkeypatch.setattr(studying, "plan_of", lambda *_given: plan)
    monkeypatch.setattr(studying, "carry_out", busy)
    monkeypatch.setattr(studying, "answering", lambda _settings: nullcontext("-"))
    out = io.StringIO()
    console = Console(file=out, markup=False)
    code = studying.study("s", "small", tmp_path, ServiceSettings(data=tmp_path), console)
    assert code == EXIT_USAGE
    assert "Fast is left out: it has no [/jar]" in out.getvalue()
    assert "run [/R] is going on" in out.getvalue()


def test_only_a_run_that_the_store_does_not_know_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def silent(*_given: object) -> None:
        raise QueryError("The store does not answer.")

    plan, notebook = plan_of(study(), "small"), open_notebook(tmp_path, "s", "small")
    key, note = plan.runs[0].key, Note("run-1", valid=True)
    notebook.add(key, note)
    monkeypatch.setattr(studying, "build_report", silent)
    with pytest.raises(QueryError):
        studying._cells("-", plan, notebook)
    assert open_notebook(tmp_path, "s", "small").of(key) == [note]
    monkeypatch.setattr(studying, "build_report", runs.request_of)
    monkeypatch.setattr(runs, "query", lambda *_given, **_names: [])
    assert studying._cells("-", plan, notebook) == {}
    assert open_notebook(tmp_path, "s", "small").of(key) == []
