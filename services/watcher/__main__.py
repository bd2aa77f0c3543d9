"""The watcher: runs one process for each watch of the data folder and restarts those that die.

    python -m services.watcher

There is one watch for each watch file (services/runtime/watches.py).
"""

from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import ServiceSettings, load_settings
from services.watcher.processes import Processes

LOOK_S = 0.5


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(ServiceSettings)
    log = configure_logs("watcher", settings.log_level)
    with serving(settings, "watcher") as service:
        log.info("started")
        processes = Processes(settings.data, service.events)
        service.follow(lambda _command: None, processes.tick, lambda: LOOK_S)
        processes.close()


if __name__ == "__main__":
    main()
