"""The watcher: runs one process for each watch of the data folder and restarts those that die.

    python -m services.watcher
    python -m services.watcher keep FILE.toml     start or update a watch
    python -m services.watcher end NAME           end one

There is one watch for each watch file (services/definitions/watches.py). `./tidegauge watch` writes
these files on one machine; where the watcher runs in a container, `keep` and `end` do so inside it.
"""

import sys
from pathlib import Path

from prometheus_client import REGISTRY

from schemas.validation_errors import DefinitionError
from services.definitions.watches import end_watch, keep_watch, read_watch
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings
from services.watcher.processes import WatchProcesses

LOOK_S = 0.5


def main(arguments: list[str]) -> None:
    """Serve until told to stop, or write or remove a watch file. Wrong arguments and files end it
    with one sentence."""
    settings = load_settings(ServiceSettings)
    if not arguments:
        serve(settings)
        return
    try:
        match arguments:
            case ["keep", file]:
                watch = read_watch(Path(file))
                state = "starts" if keep_watch(settings.data, watch) else "is unchanged"
                print(f"The watch {watch.name} {state}.")
            case ["end", name]:
                end_watch(settings.data, name)
                print(f"The watch {name} is ended.")
            case _:
                raise DefinitionError("usage: python -m services.watcher [keep FILE.toml|end NAME]")
    except (DefinitionError, OSError) as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def serve(settings: ServiceSettings) -> None:
    """Run the watches until told to stop."""
    log = configure_logs("watcher", settings.log_level)
    with serving(settings, "watcher") as service:
        log.info("started")
        processes = WatchProcesses(settings.data, service.events)
        REGISTRY.register(processes.metrics)
        service.follow(lambda _command: None, processes.tick, lambda: LOOK_S)
        processes.close()


if __name__ == "__main__":
    main(sys.argv[1:])
