"""The conductor: decides what runs when: one run at a time, as asked for, a search for the
sustainable rate, which is a series of runs, or a suite for ever.

    python -m services.conductor

Reads `run`, `suite` and `cancel` on `control.runs`, leads the services through a run and publishes
`results.lifecycle` and `results.conclusions`. Stops cleanly on SIGTERM: a run that is going on is
concluded as not valid and what it started is stopped.
"""

import sys
from collections import deque
from typing import Any

from pydantic import ValidationError

from schemas import catalogue, protocol
from schemas.protocol import RunRequest
from schemas.suite import Suite
from services.conductor.accounting import account_for
from services.conductor.interruptions import Interruptions, refuse
from services.conductor.run import Run
from services.conductor.search.searching import Searching
from services.conductor.settings import ConductorSettings
from services.conductor.suites.notes import Notes
from services.conductor.suites.running import Suites
from services.runtime.definitions import DefinitionError, load_suite
from services.runtime.events import Events
from services.runtime.logs import configure_logs
from services.runtime.mistakes import first_mistake
from services.runtime.serving import serving
from services.runtime.settings import EXIT_USAGE, load_settings

IDLE_POLL_S = 0.5


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(ConductorSettings)
    log = configure_logs("conductor", settings.log_level)
    topics = catalogue.fixed_topics(
        settings.input_partitions, settings.results_days, settings.results_mebibytes
    )
    notes = Notes(settings.data, settings.stack_id)
    waiting: deque[dict[str, Any]] = deque()
    with serving(settings, "conductor", topics) as service:
        if notes.run_id:
            account_for(notes.run_id, settings, service.events)
            notes.end_run()
        suites = Suites(settings, service.events, notes, notes.suite() or suite_of(settings))
        while not service.stop.is_set():
            command = waiting.popleft() if waiting else service.commands.poll(IDLE_POLL_S)
            if command is not None and command["command"] == "suite":
                suites.take(command)
            request = next_request(command, service.events, suites, notes)
            if request is not None:
                log.info("run_begins", run_id=request.run_id, workload=request.workload.name)
                interruptions = Interruptions(request, service, waiting)
                kind = Searching if request.workload.search else Run
                kind(request, settings, service.events, interruptions.reason).execute()
                notes.end_run()
                if request.suite:
                    suites.concluded(request, interruptions.interrupted)
        suites.close()


def suite_of(settings: ConductorSettings) -> Suite | None:
    """The suite that the settings ask for. Ends the process when its file is wrong."""
    try:
        return load_suite(settings.suite) if settings.suite else None
    except DefinitionError as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error


def next_request(
    command: dict[str, Any] | None, events: Events, suites: Suites, notes: Notes
) -> RunRequest | None:
    """The run that a command asks for; without a command, the one of the suite that is due. It is
    noted before it is announced, so that it is accounted for whatever happens."""
    if command is None:
        return suites.due()
    if command["command"] != "run":
        return None
    notes.begin_run(command["run_id"])
    request = parse_request(command, events)
    if request is None:
        notes.end_run()
    return request


def parse_request(command: dict[str, Any], events: Events) -> RunRequest | None:
    """The request of a `run` command, announced; or None when it was refused."""
    run_id = command["run_id"]
    try:
        request = RunRequest.model_validate_json(command["body"])
    except ValidationError as error:
        refuse(events, run_id, first_mistake(error))
        return None
    for pipeline in request.pipelines:
        if not set(pipeline.stages) & set(request.stages):
            refuse(events, run_id, f"pipeline {pipeline.name} runs none of the stages asked for")
            return None
    if request.workload.search and len(request.pipelines) > 1:
        refuse(events, run_id, "a search for the sustainable rate needs exactly one pipeline")
        return None
    events.lifecycle(protocol.RUN_REQUESTED, run_id, detail=request)
    return request


if __name__ == "__main__":
    main()
