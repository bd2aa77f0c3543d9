"""The collector: what every process of the stack, and the machine, uses each second.

    python -m services.collector

It samples whether or not a run goes on; `prepare` and `stop` tell it which run a sample is of.
"""

from services.collector.collecting import Collecting
from services.collector.settings import CollectorSettings
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import load_settings

MAX_WAIT_S = 0.5  # a signal to stop is looked at this often


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(CollectorSettings)
    log = configure_logs("collector", settings.log_level)
    with serving(settings, "collector") as service:
        log.info("started", stack=str(settings.stack_path))
        collecting = Collecting(settings, service.events)
        collecting.resume()
        service.follow(
            collecting.obey, collecting.tend, lambda: min(collecting.wait_s(), MAX_WAIT_S)
        )


if __name__ == "__main__":
    main()
