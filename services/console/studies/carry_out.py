"""Executes a study: its outstanding runs, on the stack of the data folder."""

import time
from collections.abc import Callable
from functools import partial

from rich.console import Console

from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from deploy.local.java import use_java
from deploy.local.parts import GATEWAY, stack_parts
from schemas.validation_errors import DefinitionError
from services.console.remote_stack import open_stack
from services.console.report.build import build_report
from services.console.run_command import BusyError, RunError, perform
from services.console.studies.plan import Note, Notebook, Plan, PlannedRun
from services.definitions.engines import load_engine
from services.definitions.requests import new_request
from services.definitions.trusted import keep_definitions
from services.readmodel.history import at_sustainable_share
from services.runtime.clickhouse import store_url
from services.runtime.settings import ServiceSettings

MINUTE_S = 60.0
Say = Callable[[str], None]


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user interrupted the study; finished runs are recorded."""


def carry_out(
    plan: Plan, notebook: Notebook, settings: ServiceSettings, console: Console, say: Say
) -> dict[str, str]:
    """Do the outstanding runs; repeat INVALID ones after all others. Returns why further systems
    are left out. Starts nothing if there is nothing to do. Raises StackError, Interrupted, and
    BusyError if another user's run is in progress."""
    tries, minutes = plan.limits.tries, plan.limits.minutes
    to_do = [run for run in plan.runs if notebook.is_open(run.key, tries)]
    left_out = {} if settings.store_url else _install(to_do, settings, say)
    to_do = [run for run in to_do if run.system.name not in left_out]
    if not to_do:
        return left_out
    more = (GATEWAY,) if any(run.workload.has_gateway for run in to_do) else ()
    stack = open_stack(settings, partial(stack_parts, more=more, is_optimised=True))
    if not settings.store_url:
        use_java(settings.jars)
    end_s = time.monotonic() + minutes * MINUTE_S
    try:
        stack.up(say)
        while to_do:
            for number, run in enumerate(to_do, start=1):
                if time.monotonic() >= end_s:
                    say(f"{minutes:g} minutes are over; the same command resumes.")
                    return left_out
                place = f"[{number}/{len(to_do)}] {run.label}"
                say(place)
                note = _done(run, settings, console, stack.check)
                notebook.add(run.key, note)
                say(f"{place}: {_told(note)}")
            to_do = [run for run in to_do if notebook.is_open(run.key, tries)]
    finally:
        stack.close(say)
    return left_out


def _install(runs: list[PlannedRun], settings: ServiceSettings, say: Say) -> dict[str, str]:
    """Install the engines of the runs; returns why systems cannot be measured."""
    left_out: dict[str, str] = {}
    for run in {run.system.name: run for run in runs}.values():
        try:
            install_engines([load_engine(run.pipeline.engine)], settings, say)
        except InstallError as error:
            left_out[run.system.name] = f"{error}."
            say(f"{run.system.name} is left out: {error}.")
    return left_out


def _done(
    run: PlannedRun, settings: ServiceSettings, console: Console, check_stack: Callable[[], None]
) -> Note:
    url = store_url(settings)
    request = new_request(run.workload, [run.pipeline], run.stages, run.domain.spec)
    if not settings.store_url:
        keep_definitions(settings.data, [run.workload], [run.pipeline], [run.domain])
    try:
        request = at_sustainable_share(request, url)
        progress = perform(request, settings, console, check_stack)
    except BusyError:
        raise
    except (RunError, DefinitionError) as error:
        return Note(request.run_id, valid=False, failed=str(error))
    if progress.interrupted:
        raise Interrupted
    return Note(request.run_id, valid=build_report(url, request.run_id).valid)


def _told(note: Note) -> str:
    if note.failed:
        return note.failed
    return f"run {note.run_id}, {'valid' if note.valid else 'INVALID'}"
