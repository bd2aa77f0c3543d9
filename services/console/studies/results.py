"""The finished runs of a study as a file: `NAME-SCALE.json`, written beside the page and read by
`study --from`, so that a study can be continued on another day or with another data folder.

Version 1; later versions only add fields.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from schemas.model import Name
from schemas.report import Report, ReportPart
from schemas.validation_errors import DefinitionError, first_mistake
from services.console.studies.carry_out import Note, Notebook, StudyPlan


class FinishedRun(ReportPart):
    """The last run, or the valid one, of a planned run. key: of PlannedRun; failed: why it has no
    report."""

    key: str
    run_id: str
    valid: bool
    failed: str = ""
    report: Report | None = None


class StudyResults(ReportPart):
    """The file."""

    version: Literal[1]
    study: Name
    scale: Name
    runs: list[FinishedRun]


def take_runs(
    files: Iterable[StudyResults], plan: StudyPlan, notebook: Notebook
) -> dict[str, Report]:
    """Note the valid runs that the notebook lacks; of several the first. Returns their reports by
    run id. Runs with another workload or other settings than the plan's are left out."""
    planned = {run.key for run in plan.runs}
    reports: dict[str, Report] = {}
    for run in (run for file in files for run in file.runs):
        noted = any(note.valid for note in notebook.of(run.key))
        if run.key in planned and run.valid and run.report is not None and not noted:
            notebook.take(run.key, Note.of(run.run_id, run.report))
            reports[run.run_id] = run.report
    return reports


def finished_runs(
    plan: StudyPlan, notebook: Notebook, build: Callable[[str], Report]
) -> Iterator[FinishedRun]:
    """The run that counts of each planned run that is done. build: the report of a run id."""
    for run in plan.runs:
        note = notebook.chosen(run.key)
        if note is not None:
            report = None if note.failed else build(note.run_id)
            yield FinishedRun(
                key=run.key,
                run_id=note.run_id,
                valid=note.valid,
                failed=note.failed,
                report=report,
            )


def read_results(paths: Iterable[Path], study: str, scale: str) -> Iterator[StudyResults]:
    """The files. Raises DefinitionError for one that cannot be read, or is of another study or
    scale."""
    for path in paths:
        try:
            result = StudyResults.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DefinitionError(f"--from {path}: {first_mistake(error)}.") from error
        except OSError as error:
            raise DefinitionError(f"--from {path}: {error.strerror}.") from error
        if (result.study, result.scale) != (study, scale):
            raise DefinitionError(
                f"--from {path}: these are runs of the study {result.study} at the scale "
                f"{result.scale}."
            )
        yield result
