"""What the verb `study` does: it carries out a study, and writes its page."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from rich.console import Console

from schemas.report import Report
from schemas.validation_errors import DefinitionError
from services.console.arguments import EXIT_FAILED, EXIT_INTERRUPTED
from services.console.files import remove_files, write_file
from services.console.remote_stack import answering
from services.console.report.build import build_report
from services.console.run_command import BusyError
from services.console.studies.carry_out import (
    Interrupted,
    Note,
    Notebook,
    PlannedRun,
    Say,
    StudyPlan,
    carry_out,
    open_notebook,
    plan_of,
)
from services.console.studies.content import Cells, MeasuredCell, Standing, article, html, markdown
from services.console.studies.results import (
    StudyResults,
    finished_runs,
    read_results,
    take_runs,
)
from services.console.terminal import headed, teller
from services.definitions.engines import engine_for, installed
from services.definitions.pipelines import names
from services.definitions.workloads import STUDIES_DIR, load_study
from services.readmodel.runs import UnknownRunError
from services.runtime.settings import EXIT_USAGE, ServiceSettings

CarryOut = Callable[[StudyPlan, Notebook, ServiceSettings, Console, Say], dict[str, str]]


def study(
    name: str,
    scale: str,
    folder: Path,
    settings: ServiceSettings,
    console: Console,
    *,
    earlier: tuple[Path, ...] = (),
    carry_out: CarryOut = carry_out,
) -> int:
    """Run a study and write its page and results; 0 only if every run that is possible here is
    valid. earlier: results of runs that need not be repeated."""
    result = load_study(name)
    if not folder.is_dir():
        raise DefinitionError(f"--folder {folder}: there is no such folder.")
    plan = plan_of(result, scale)
    notebook = open_notebook(settings.data, result.name, scale)
    taken = take_runs(read_results(earlier, result.name, scale), plan, notebook)
    pages = [folder / f"{result.name}-{scale}{suffix}" for suffix in (".html", ".md")]
    remove_files(pages)
    say, code, left_out = teller(console), 0, dict(plan.left_out)
    for system, reason in left_out.items():
        say(f"{system} is left out: {reason}")
    try:
        left_out |= carry_out(plan, notebook, settings, console, say)
    except Interrupted:
        code = EXIT_INTERRUPTED
    except BusyError as error:
        say(str(error))
        code = EXIT_USAGE
    with answering(settings) as url:

        @cache
        def build(run_id: str) -> Report:
            return taken[run_id] if run_id in taken else build_report(url, run_id)

        cells = cells_of(plan, notebook, build)
        runs = list(finished_runs(plan, notebook, build))
    here = [run for run in plan.runs if run.system.name not in left_out]
    to_do = sum(notebook.chosen(run.key) is None for run in here)
    standing = Standing(scale, left_out, _versions(plan, settings), to_do)
    page = article(result, standing, cells)
    results = StudyResults(version=1, study=result.name, scale=scale, runs=runs)
    texts = (html(page), markdown(page), json.dumps(results.as_json(), indent=1) + "\n")
    for path, text in zip([*pages, pages[0].with_suffix(".json")], texts, strict=True):
        write_file("--folder", path, text.encode())
        console.print(f"Wrote {path}", soft_wrap=True)
    if to_do:
        console.print(f"{to_do} runs remain; the same command resumes.")
    return code or (0 if all(_is_valid(notebook, run) for run in here) else EXIT_FAILED)


def _versions(plan: StudyPlan, settings: ServiceSettings) -> dict[str, str]:
    places = {run.system.name: installed(engine_for(run.pipeline), settings) for run in plan.runs}
    return {name: place.version() for name, place in places.items()}


def _is_valid(notebook: Notebook, run: PlannedRun) -> bool:
    note = notebook.chosen(run.key)
    return note is not None and note.valid


def cells_of(plan: StudyPlan, notebook: Notebook, build: Callable[[str], Report]) -> Cells:
    """The results by experiment, system and stage. build: the report of a run id. A run that the
    store does not know is removed from the notebook, so that it is repeated. Raises QueryError."""
    result: dict[tuple[str, str, str], MeasuredCell] = {}
    for run in plan.runs:
        note = notebook.chosen(run.key)
        if note is None:
            continue
        try:
            measured = _measured(run, note, build)
        except UnknownRunError:
            notebook.forget(run.key)
            notebook.write()
            continue
        result |= {(run.experiment.name, run.system.name, stage): measured for stage in run.stages}
    return result


def _measured(run: PlannedRun, note: Note, build: Callable[[str], Report]) -> MeasuredCell:
    report = None if note.failed else build(note.run_id)
    return MeasuredCell(note.run_id, run.pipeline.name, note.valid, report, note.failed)


def show_studies(console: Console) -> None:
    """List all studies, with their scales and durations."""
    for name in names(STUDIES_DIR):
        result = load_study(name)
        console.print(headed(name, result.question), soft_wrap=True)
        for scale in result.scales:
            plan = plan_of(result, scale)
            size = f"{len(plan.runs)} runs, at most {plan.limits.minutes:g} minutes"
            console.print(f"  --scale {scale}: {size}", soft_wrap=True)
