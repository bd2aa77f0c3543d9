"""The generator: turns a workload's load shape into records on the input topics, on schedule.

    python -m services.generator

It waits for `prepare`, sends probe traffic until `start`, runs the load in a thread of its own
while commands are still read, and ends with `load_finished`.
"""

import os
import sys

from confluent_kafka import KafkaException

from schemas import protocol
from services.generator.runs import Runs
from services.generator.settings import GeneratorSettings
from services.runtime.events import open_commands, open_events
from services.runtime.health import PortTakenError, serve_health
from services.runtime.logs import configure_logs
from services.runtime.settings import load_settings
from services.runtime.stopping import stop_on_signals

THREAD_SWITCH_S = 0.0005  # the default of 5 ms would let encoding hold up a record that is due


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(GeneratorSettings)
    log = configure_logs("generator", settings.log_level)
    sys.setswitchinterval(THREAD_SWITCH_S)
    stop = stop_on_signals()
    events = open_events(settings, "generator")
    commands = open_commands(settings, "generator", events)
    runs = Runs(settings, events, log)
    health = serve_health(settings.host, settings.port("generator"), lambda: not stop.is_set())
    events.lifecycle(protocol.SERVICE_STARTED, detail={"pid": os.getpid()})
    while not stop.is_set():
        command = commands.poll(runs.poll_timeout_s)
        if command is not None:
            runs.obey(command)
        runs.tend()
    runs.abandon("the service stops")
    events.lifecycle(protocol.SERVICE_STOPPED)
    commands.close()
    health.shutdown()


if __name__ == "__main__":
    try:
        main()
    except (PortTakenError, KafkaException) as error:
        sys.exit(f"generator: {error}")
