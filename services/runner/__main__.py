"""The runner: `prepare` starts one program per pipeline, `stop` ends them.

python -m services.runner
"""

import contextlib
import shutil
from functools import partial
from typing import Any

from pydantic import ValidationError

from schemas import protocol
from schemas.protocol import PhasePlan, RunPlan, Stop
from services.runner.agent import Agent
from services.runtime.events import Events
from services.runtime.kafka import admin_client
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.topics import delete_topics

SERVICE = "runner"
WATCH_INTERVAL_S = 0.1


def main() -> None:
    """Serve until told to stop; no pipeline keeps running."""
    settings = load_settings(ServiceSettings)
    configure_logs(SERVICE, settings.log_level)
    with serving(settings, SERVICE) as service:
        # Files of a runner that was killed.
        shutil.rmtree(settings.data.resolve() / "runs", ignore_errors=True)
        remove_topics = partial(delete_topics, admin_client(settings, SERVICE))
        agent = Agent(settings, service.events, remove_topics=remove_topics)
        service.follow(
            partial(handle_command, agent=agent, events=service.events),
            agent.watch,
            lambda: WATCH_INTERVAL_S,
        )
        agent.close()


def handle_command(command: dict[str, Any], agent: Agent, events: Events) -> None:
    """Carry out one command; commands that do not concern pipelines are ignored."""
    run_id = command["run_id"]
    if command["command"] == "stop":
        agent.stop(run_id, keep_s(command["body"]))
    elif command["command"] == "start":
        with contextlib.suppress(ValidationError):  # the evaluator fails the run
            agent.begin(run_id, PhasePlan.model_validate_json(command["body"]))
    elif command["command"] == "prepare":
        plan = None
        try:
            plan = RunPlan.model_validate_json(command["body"])
            agent.prepare(plan)
        except (ValueError, OSError) as error:  # also: no domain, unknown engine
            reason = f"runner cannot prepare: {error}"
            events.lifecycle(protocol.FAILED, run_id, detail={"reason": reason})
            if plan is not None:  # otherwise the conductor waits for their end
                agent.give_up(plan)


def keep_s(body: str) -> float:
    """Seconds for which a `stop` keeps the pipelines; 0 if it cannot be parsed."""
    try:
        stop = Stop.model_validate_json(body)
    except ValidationError:
        return 0
    return stop.keep_s if stop.keep_pipelines else 0


if __name__ == "__main__":
    main()
