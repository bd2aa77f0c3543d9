"""The agent of the pipelines: `prepare` starts one driver per pipeline, `stop` ends them."""

import os
import sys
import threading
from typing import Any

from pydantic import ValidationError

from schemas import protocol
from schemas.protocol import RunPlan
from services.runtime.events import Commands, Events, open_commands, open_events
from services.runtime.health import serve_health
from services.runtime.logs import configure_logs
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.stopping import stop_on_signals
from services.spark_pipeline.agent import Agent

SERVICE = "spark_pipeline"
POLL_TIMEOUT_S = 0.25


def main() -> int:
    """Run until SIGTERM; leaves no driver behind."""
    settings = load_settings(ServiceSettings)
    configure_logs(SERVICE, settings.log_level)
    stop = stop_on_signals()
    ready = threading.Event()
    serve_health(settings.host, settings.port(SERVICE), ready.is_set)

    events = open_events(settings, SERVICE)
    commands = open_commands(settings, SERVICE, events)
    agent = Agent(settings.data.resolve(), events)
    events.lifecycle(protocol.SERVICE_STARTED, detail={"pid": os.getpid()})
    ready.set()

    follow(commands, agent, events, stop)

    agent.close()
    commands.close()
    events.lifecycle(protocol.SERVICE_STOPPED, detail={"pid": os.getpid()})
    return 0


def follow(commands: Commands, agent: Agent, events: Events, stop: threading.Event) -> None:
    """Carry out commands and watch the drivers until `stop` is set."""
    while not stop.is_set():
        command = commands.poll(POLL_TIMEOUT_S)
        if command is not None:
            obey(command, agent, events)
        agent.watch()


def obey(command: dict[str, Any], agent: Agent, events: Events) -> None:
    """Carry out one command; one that does not concern pipelines changes nothing."""
    run_id = command["run_id"]
    if command["command"] == "stop":
        agent.stop(run_id)
    elif command["command"] == "prepare":
        try:
            plan = RunPlan.model_validate_json(command["body"])
            agent.prepare(plan)
        except (ValidationError, OSError) as error:
            reason = f"spark_pipeline cannot prepare: {error}"
            events.lifecycle(protocol.FAILED, run_id, detail={"reason": reason})


if __name__ == "__main__":
    sys.exit(main())
