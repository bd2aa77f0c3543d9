"""The runner: `prepare` starts one program per pipeline, `stop` ends them.

python -m services.runner
"""

import shutil
from functools import partial

from schemas.commands import Command, Malformed, Prepare, Start, Stop
from schemas.events import Failed
from services.runner.agent import Agent
from services.runner.small_disk import unmount_below
from services.runtime.events import Events
from services.runtime.kafka import admin_client, delete_topics
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import ServiceSettings, load_settings

SERVICE = "runner"
WATCH_INTERVAL_S = 0.1


def main() -> None:
    """Serve until told to stop; no pipeline keeps running."""
    settings = load_settings(ServiceSettings)
    configure_logs(SERVICE, settings.log_level)
    with serving(settings, SERVICE) as service:
        # Files of a runner that was killed.
        runs = settings.data.resolve() / "runs"
        unmount_below(runs)
        shutil.rmtree(runs, ignore_errors=True)
        remove_topics = partial(delete_topics, admin_client(settings, SERVICE))
        agent = Agent(settings, service.events, remove_topics=remove_topics)
        service.follow(
            partial(handle_command, agent=agent, events=service.events),
            agent.watch,
            lambda: WATCH_INTERVAL_S,
        )
        agent.close()


def handle_command(command: Command | Malformed, agent: Agent, events: Events) -> None:
    """Carry out one command; commands that do not concern pipelines are ignored."""
    run_id = command.run_id
    match command:
        case Stop(keep_s=keep_s, keep_pipelines=keeps):
            agent.stop(run_id, keep_s if keeps else 0)
        case Start(phases=phases):
            agent.begin(run_id, phases)
        case Prepare(plan=plan):
            try:
                agent.prepare(plan)
            except (ValueError, OSError) as error:  # no domain, unknown engine
                _fail(events, run_id, str(error))
                agent.give_up(plan)  # the conductor waits for their end
        case Malformed(name="prepare", reason=reason):
            _fail(events, run_id, reason)


def _fail(events: Events, run_id: str, reason: str) -> None:
    events.publish(Failed(run_id=run_id, reason=f"runner cannot prepare: {reason}"))


if __name__ == "__main__":
    main()
