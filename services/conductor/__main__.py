"""The conductor: runs one run at a time: a requested run, a search for the sustainable rate, which
is a series of runs, or a suite without end.

    python -m services.conductor

Reads `run`, `suite`, `cancel` and `changes` on `control.runs`, leads the services through a run and
publishes `results.lifecycle` and `results.conclusions`; a thread posts to webhooks. On SIGTERM it
stops cleanly: the current run is concluded as not valid and everything it started is stopped. After
a kill the next conductor concludes the interrupted run likewise; a search resumes after its last
step.
"""

import sys
from collections import deque

from schemas import catalogue
from schemas.commands import Command, FindChanges, Malformed, RequestRun, RunSuite
from schemas.events import RunRequested
from schemas.protocol import RunRequest
from schemas.suite import Suite
from schemas.validation_errors import DefinitionError
from services.conductor.cancellation import Cancellation, refuse
from services.conductor.notices.telling import Telling
from services.conductor.orphaned_runs import (
    conclude_orphan,
    conclude_steps,
    read_back,
    recovered_run,
)
from services.conductor.run import Run, measure_floor
from services.conductor.search.bisection import SoFar
from services.conductor.search.searching import Searching
from services.conductor.settings import ConductorSettings
from services.conductor.suites.running import Suites
from services.conductor.suites.suite_state import SuiteState
from services.definitions.trusted import keep_suite
from services.definitions.workloads import load_suite
from services.runtime.events import Events
from services.runtime.logs import configure_logs
from services.runtime.process import now_ms, release_memory
from services.runtime.serving import Service, serving
from services.runtime.settings import EXIT_USAGE, load_settings

IDLE_POLL_S = 0.5


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(ConductorSettings)
    log = configure_logs("conductor", settings.log_level)
    topics = catalogue.fixed_topics(settings.results_days, settings.results_mebibytes)
    notes = SuiteState(settings.data, settings.stack_id)
    waiting: deque[Command] = deque()
    with serving(settings, "conductor", topics) as service:
        suites = Suites(settings, service.events, notes, notes.suite() or suite_of(settings))
        telling = Telling(
            settings, settings.stack_id, lambda: suites.notify, lambda: suites.has_suite
        )
        telling.start()
        search = left_open(settings, service.events, suites, notes)
        if search is not None:
            taken_up, so_far = search
            log.info("search_goes_on", run_id=taken_up.run_id, steps=len(so_far.steps))
            carry_out(taken_up, settings, service, suites, waiting=waiting, so_far=so_far)
        notes.end_run()
        while not service.stop.is_set():
            command = waiting.popleft() if waiting else service.commands.poll(IDLE_POLL_S)
            match command:
                case RunSuite():
                    suites.take(command.suite)
                case FindChanges():
                    suites.look_for_changes(command.run_id)
            request = next_request(command, service.events, suites, notes)
            if request is not None:
                log.info("run_begins", run_id=request.run_id, workload=request.workload.name)
                suites.give_way()
                carry_out(request, settings, service, suites, waiting=waiting)
                notes.end_run()
                release_memory()
        telling.close()
        suites.close()


def carry_out(
    request: RunRequest,
    settings: ConductorSettings,
    service: Service,
    suites: Suites,
    *,
    waiting: deque[Command],
    so_far: SoFar | None = None,
) -> None:
    """Take a run to its conclusion. waiting: receives commands that arrive meanwhile; so_far: state
    of its search."""
    interruptions = Cancellation(request, service, waiting)
    if not request.suite:
        suites.keeping.forget()
    is_warm = bool(request.suite) and suites.is_warm
    # Measuring the floor would stop the kept pipelines.
    if request.workload.floor_s and so_far is None and not is_warm:
        measure_floor(request, settings, service.events, interruptions.reason)
    if request.workload.search:
        Searching(request, settings, service.events, interruptions.reason, so_far).execute()
    else:
        Run(
            request,
            settings,
            service.events,
            interruptions.reason,
            warm=is_warm,
            keep_s=suites.keep_s,
        ).execute(lambda state: suites.keeps(request, state))
    if request.suite:
        suites.concluded(request, interruptions.interrupted)


def left_open(
    settings: ConductorSettings, events: Events, suites: Suites, notes: SuiteState
) -> tuple[RunRequest, SoFar] | None:
    """The search that a killed conductor left open, if it is still wanted; concludes everything
    else it left open."""
    if not notes.run_id:
        return None
    past = recovered_run(notes.run_id, read_back(settings, notes.run_id, notes.run_began_ms))
    request = past.request if past.can_go_on and notes.run_is_of_this_stack else None
    if request is None or not (request.suite is None or suites.goes_on_with(request)):
        conclude_orphan(past, events)
        return None
    conclude_steps(past, events)
    return request, past.so_far


def suite_of(settings: ConductorSettings) -> Suite | None:
    """The suite named in the settings. Exits if its file is invalid."""
    try:
        suite = load_suite(settings.suite) if settings.suite else None
        if suite is not None:
            keep_suite(settings.data, suite)
        return suite
    except (DefinitionError, OSError) as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error


def next_request(
    command: Command | Malformed | None, events: Events, suites: Suites, notes: SuiteState
) -> RunRequest | None:
    """The run requested by a command or, without a command, the due run of the suite. The run is
    saved before it is announced, so that it is accounted for after a kill."""
    match command:
        case None:
            return suites.due()
        case Malformed(name="run"):
            refuse(events, command.run_id, command.reason)
            return None
        case RequestRun():
            notes.begin_run(command.run_id, now_ms())
            request = announced(command.request, events)
            if request is None:
                notes.end_run()
            return request
    return None


def announced(request: RunRequest, events: Events) -> RunRequest | None:
    """The request after its announcement; None if it was refused."""
    run_id = request.run_id
    for pipeline in request.pipelines:
        if not request.stages_of(pipeline):
            refuse(events, run_id, f"pipeline {pipeline.name} runs none of the requested stages")
            return None
    if request.workload.search and len(request.pipelines) > 1:
        refuse(events, run_id, "a search for the sustainable rate needs exactly one pipeline")
        return None
    events.publish(RunRequested(run_id=run_id, request=request))
    return request


if __name__ == "__main__":
    main()
