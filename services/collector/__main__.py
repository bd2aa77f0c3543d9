"""The collector: what every process of the stack, and the machine, uses each second.

    python -m services.collector

It samples whether or not a run goes on; `prepare` and `stop` tell it which run a sample is of.
"""

import os
import sys

from confluent_kafka import KafkaException

from schemas import protocol
from services.collector.collecting import Collecting
from services.collector.settings import CollectorSettings
from services.runtime.events import open_commands, open_events
from services.runtime.health import PortTakenError, serve_health
from services.runtime.logs import configure_logs
from services.runtime.settings import load_settings
from services.runtime.stopping import stop_on_signals

MAX_WAIT_S = 0.5  # a signal to stop is looked at this often


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(CollectorSettings)
    log = configure_logs("collector", settings.log_level)
    stop = stop_on_signals()
    events = open_events(settings, "collector")
    commands = open_commands(settings, "collector", events)
    health = serve_health(settings.host, settings.port("collector"), lambda: not stop.is_set())
    events.lifecycle(protocol.SERVICE_STARTED, detail={"pid": os.getpid()})
    log.info("started", stack=str(settings.stack_path))
    collecting = Collecting(settings, events)
    while not stop.is_set():
        command = commands.poll(min(collecting.wait_s(), MAX_WAIT_S))
        if command is not None:
            collecting.obey(command)
        collecting.tend()
    events.lifecycle(protocol.SERVICE_STOPPED)
    commands.close()
    health.shutdown()


if __name__ == "__main__":
    try:
        main()
    except (PortTakenError, KafkaException) as error:
        sys.exit(f"collector: {error}")
