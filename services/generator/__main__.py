"""The generator: sends records to the input topics on schedule, as a workload's load defines them.

    python -m services.generator

`prepare` prepares the records and starts probe traffic. `start` runs the load in a separate thread,
which publishes `load_finished` when it is done.
"""

import sys

from services.generator.settings import GeneratorSettings
from services.runtime.logs import configure_logs
from services.runtime.process import leave_out_pandas, let_arrow_use_malloc
from services.runtime.serving import serving
from services.runtime.settings import load_settings

THREAD_SWITCH_S = 0.0005  # with the default of 5 ms, encoding would delay due records


def main() -> None:
    """Serve until the process is told to stop."""
    settings = load_settings(GeneratorSettings)
    log = configure_logs("generator", settings.log_level)
    sys.setswitchinterval(THREAD_SWITCH_S)
    let_arrow_use_malloc()
    leave_out_pandas()
    from services.generator.runs import RunCommands  # imports Arrow

    with serving(settings, "generator") as service:
        runs = RunCommands(settings, service.events, log)
        service.follow(runs.handle_command, runs.tick, lambda: runs.poll_timeout_s)
        runs.abandon("the service stops")


if __name__ == "__main__":
    main()
