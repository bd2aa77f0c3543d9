"""The conductor: decides what runs when. For now: one run at a time, as asked for.

    python -m services.conductor

Reads `run` and `cancel` on `control.runs`, leads the services through a run and publishes
`results.lifecycle` and `results.conclusions`. Stops cleanly on SIGTERM: a run that is going on is
concluded as not valid and what it started is stopped.
"""

from typing import Any

from pydantic import ValidationError

from schemas import catalogue, protocol
from schemas.protocol import RunRequest
from services.conductor.run import Run
from services.conductor.settings import ConductorSettings
from services.runtime.events import Events
from services.runtime.kafka import admin_client
from services.runtime.logs import configure_logs
from services.runtime.serving import Service, serving
from services.runtime.settings import load_settings
from services.runtime.topics import ensure_topics

IDLE_POLL_S = 0.5


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(ConductorSettings)
    log = configure_logs("conductor", settings.log_level)
    ensure_topics(
        admin_client(settings, "conductor"),
        catalogue.fixed_topics(
            settings.input_partitions, settings.results_days, settings.results_mebibytes
        ),
        settings.replication,
    )
    with serving(settings, "conductor") as service:
        while not service.stop.is_set():
            command = service.commands.poll(IDLE_POLL_S)
            if command is not None and command["command"] == "run":
                request = parse_request(command, service.events)
                if request is not None:
                    log.info("run_begins", run_id=request.run_id, workload=request.workload.name)
                    interrupted = Interruptions(request.run_id, service)
                    Run(request, settings, service.events, interrupted.reason).execute()


def parse_request(command: dict[str, Any], events: Events) -> RunRequest | None:
    """The request of a `run` command, announced; or None when it was refused."""
    run_id = command["run_id"]
    try:
        request = RunRequest.model_validate_json(command["body"])
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        refuse(events, run_id, f"{field}: {first['msg']}")
        return None
    for pipeline in request.pipelines:
        if not set(pipeline.stages) & set(request.stages):
            refuse(events, run_id, f"pipeline {pipeline.name} runs none of the stages asked for")
            return None
    events.lifecycle(protocol.RUN_REQUESTED, run_id, detail=request)
    return request


def refuse(events: Events, run_id: str, reason: str) -> None:
    """Say that a run will not take place."""
    events.lifecycle(protocol.RUN_REFUSED, run_id, detail={"reason": reason})


class Interruptions:
    """What may end the current run early: `cancel`, or the end of this process. Other runs that
    are asked for meanwhile are refused."""

    def __init__(self, run_id: str, service: Service) -> None:
        self._run_id = run_id
        self._service = service

    def reason(self) -> str:
        """Why the run should end now, or an empty string."""
        if self._service.stop.is_set():
            return "The conductor was stopped."
        command = self._service.commands.poll(0)
        if command is None:
            return ""
        if command["command"] == "run":
            refuse(self._service.events, command["run_id"], f"run {self._run_id} is going on")
        elif command["command"] == "cancel" and command["run_id"] == self._run_id:
            return "The run was cancelled."
        return ""


if __name__ == "__main__":
    main()
