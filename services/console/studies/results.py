"""The finished runs of a study as a file: `NAME-SCALE.json`, written beside the page and read by
`study --from`, so that a study can be continued on another day or with another data folder.

Version 1; later versions only add fields.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from schemas.model import Name
from schemas.report import Report, ReportPart
from schemas.validation_errors import DefinitionError, first_mistake
from services.console.studies.carry_out import Note, Notebook, PlannedRun, StudyPlan
from services.readmodel.runs import UnknownRunError

Curves = dict[str, dict[str, list[tuple[float, float]]]]


class FinishedRun(ReportPart):
    """The last run, or the valid one, of a planned run. key: of PlannedRun; failed: why it has no
    report; curves: those of its experiment, by stage and name, as points (seconds, value)."""

    key: str
    run_id: str
    valid: bool
    failed: str = ""
    report: Report | None = None
    curves: Curves = Field(default_factory=dict)


class StudyResults(ReportPart):
    """The file."""

    version: Literal[1]
    study: Name
    scale: Name
    runs: list[FinishedRun]


ReadRun = Callable[[PlannedRun, str], tuple[Report, Curves]]


def take_runs(
    files: Iterable[StudyResults], plan: StudyPlan, notebook: Notebook
) -> dict[str, FinishedRun]:
    """Note the valid runs that the notebook lacks; of several the first. Returns by run id those
    that it has now, whether noted before or not. Runs with another workload or other settings than
    the plan's are left out."""
    planned = {run.key for run in plan.runs}
    taken: dict[str, FinishedRun] = {}
    for run in (run for file in files for run in file.runs):
        if run.key not in planned or not run.valid or run.report is None:
            continue
        if not any(note.valid for note in notebook.of(run.key)):
            notebook.take(run.key, Note.of(run.run_id, run.report))
        chosen = notebook.chosen(run.key)
        if chosen is not None and chosen.run_id == run.run_id:
            taken[run.run_id] = run
    return taken


def finished_runs(plan: StudyPlan, notebook: Notebook, read: ReadRun) -> Iterator[FinishedRun]:
    """The run that counts of each planned run that is done. read: its report and curves. One that
    the store does not know is removed from the notebook, so that it is repeated."""
    for run in plan.runs:
        note = notebook.chosen(run.key)
        if note is None:
            continue
        report: Report | None = None
        curves: Curves = {}
        try:
            if not note.failed:
                report, curves = read(run, note.run_id)
        except UnknownRunError:
            notebook.forget(run.key)
            notebook.write()
            continue
        yield FinishedRun(
            key=run.key,
            run_id=note.run_id,
            valid=note.valid,
            failed=note.failed,
            report=report,
            curves=curves,
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
