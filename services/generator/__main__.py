"""The generator: turns a workload's load shape into records on the input topics, on schedule.

    python -m services.generator

At `prepare` it makes the records ready and sends probe traffic. At `start` it runs the load in a
thread of its own, and publishes `load_finished` at its end.
"""

import sys

from services.generator.runs import Runs
from services.generator.settings import GeneratorSettings
from services.runtime.logs import configure_logs
from services.runtime.memory import leave_out_pandas
from services.runtime.serving import serving
from services.runtime.settings import load_settings

THREAD_SWITCH_S = 0.0005  # the default of 5 ms would let encoding hold up a record that is due


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(GeneratorSettings)
    log = configure_logs("generator", settings.log_level)
    sys.setswitchinterval(THREAD_SWITCH_S)
    leave_out_pandas()
    with serving(settings, "generator") as service:
        runs = Runs(settings, service.events, log)
        service.follow(runs.handle_command, runs.tick, lambda: runs.poll_timeout_s)
        runs.abandon("the service stops")


if __name__ == "__main__":
    main()
