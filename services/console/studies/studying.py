"""What the verb `study` does: it carries out a study, and writes its page."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console

from schemas.report import Report
from schemas.validation_errors import DefinitionError
from services.console.arguments import EXIT_FAILED, EXIT_INTERRUPTED
from services.console.files import remove_files, write_file
from services.console.remote_stack import answering
from services.console.report.build import build_report
from services.console.run_command import BusyError
from services.console.studies.article import html, markdown
from services.console.studies.carry_out import (
    Interrupted,
    Notebook,
    PlannedRun,
    Say,
    StudyPlan,
    carry_out,
    open_notebook,
    plan_of,
)
from services.console.studies.content import (
    Cells,
    MeasuredCell,
    Standing,
    article,
    remaining,
)
from services.console.studies.results import (
    Curves,
    FinishedRun,
    StudyResults,
    finished_runs,
    read_results,
    take_runs,
)
from services.console.terminal import headed, teller
from services.definitions.engines import engine_for, installed
from services.definitions.pipelines import names
from services.definitions.workloads import STUDIES_DIR, load_study
from services.readmodel.timelines import read_curves
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
    stem = f"{result.name}-{scale}"
    drawn = [
        picture
        for experiment in result.experiments
        for number in ("", "-[0-9]", "-[0-9][0-9]")
        for picture in folder.glob(f"{stem}-{experiment.name}{number}.svg")
    ]
    remove_files([folder / f"{stem}.html", folder / f"{stem}.md", *drawn])
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
        runs = list(finished_runs(plan, notebook, partial(_read, url, taken)))
    here = [run for run in plan.runs if run.system.name not in left_out]
    to_do = sum(notebook.chosen(run.key) is None for run in here)
    standing = Standing(scale, left_out, _versions(plan, settings), to_do)
    page = article(result, standing, cells_of(plan, runs))
    results = StudyResults(version=1, study=result.name, scale=scale, runs=runs)
    texts = {
        f"{stem}.html": html(page),
        f"{stem}.md": markdown(page, stem),
        f"{stem}.json": json.dumps(results.as_json(), indent=1) + "\n",
    }
    pictures = page.pictures(stem)
    for file, each in pictures.items():
        write_file("--folder", folder / file, f"{each.as_file()}\n".encode())
    for file, text in texts.items():
        write_file("--folder", folder / file, text.encode())
        console.print(f"Wrote {folder / file}", soft_wrap=True)
    if pictures:
        console.print(f"Wrote its pictures, {stem}-*.svg ({len(pictures)})", soft_wrap=True)
    if to_do:
        console.print(remaining(to_do))
    return code or (0 if all(_is_valid(notebook, run) for run in here) else EXIT_FAILED)


def _versions(plan: StudyPlan, settings: ServiceSettings) -> dict[str, str]:
    places = {run.system.name: installed(engine_for(run.pipeline), settings) for run in plan.runs}
    return {name: place.version() for name, place in places.items()}


def _is_valid(notebook: Notebook, run: PlannedRun) -> bool:
    note = notebook.chosen(run.key)
    return note is not None and note.valid


def _read(
    url: str, taken: Mapping[str, FinishedRun], run: PlannedRun, run_id: str
) -> tuple[Report, Curves]:
    """Report and curves of a run, from a file or the store. Raises UnknownRunError, QueryError."""
    known = taken.get(run_id)
    if known is not None and known.report is not None:
        return known.report, known.curves
    report, names = build_report(url, run_id), run.experiment.curves
    return report, read_curves(url, run_id, run.pipeline.name, names) if names else {}


def cells_of(plan: StudyPlan, runs: Iterable[FinishedRun]) -> Cells:
    """The results by experiment, system and stage."""
    result: dict[tuple[str, str, str], MeasuredCell] = {}
    planned = {run.key: run for run in plan.runs}
    for each in runs:
        run = planned[each.key]
        cell = MeasuredCell(
            each.run_id, run.pipeline.name, each.valid, each.report, each.failed, each.curves
        )
        result |= {(run.experiment.name, run.system.name, stage): cell for stage in run.stages}
    return result


def show_studies(console: Console) -> None:
    """List all studies, with their scales and durations."""
    for name in names(STUDIES_DIR):
        result = load_study(name)
        console.print(headed(name, result.question), soft_wrap=True)
        for scale in result.scales:
            plan = plan_of(result, scale)
            size = f"{len(plan.runs)} runs, at most {plan.limits.minutes:g} minutes"
            console.print(f"  --scale {scale}: {size}", soft_wrap=True)
