"""The collector: what every process of the stack, and the machine, uses each second; and every few
seconds what Prometheus endpoints say, the broker's for one, and how far consumer groups are behind.

    python -m services.collector

It samples whether or not a run goes on; `prepare` and `stop` tell it which run a sample is of.
"""

from services.collector.collecting import Collecting
from services.collector.metrics.group_lag import ConsumerGroups
from services.collector.metrics.prometheus import Endpoint
from services.collector.metrics.samples import Source
from services.collector.metrics.watching import Watching
from services.collector.settings import CollectorSettings
from services.runtime.kafka import admin_client
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import load_settings

MAX_WAIT_S = 0.5  # a signal to stop is looked at this often


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(CollectorSettings)
    log = configure_logs("collector", settings.log_level)
    with serving(settings, "collector") as service:
        log.info("started", stack=str(settings.stack_path), targets=list(settings.targets))
        watching = Watching(sources(settings), settings.collector_scrape_interval_s, log)
        collecting = Collecting(settings, service.events, watching)
        collecting.resume()
        watching.start()
        service.follow(
            collecting.handle_command, collecting.tick, lambda: min(collecting.wait_s(), MAX_WAIT_S)
        )


def sources(settings: CollectorSettings) -> list[Source]:
    """Everything that is asked for metrics."""
    timeout_s = settings.collector_scrape_timeout_s
    endpoints = [
        Endpoint(
            name,
            target,
            timeout_s=timeout_s,
            max_bytes=settings.collector_scrape_bytes,
            max_series=settings.collector_scrape_series,
        )
        for name, target in settings.targets.items()
    ]
    groups = ConsumerGroups(lambda: admin_client(settings, "collector-lag"), timeout_s)
    return [*endpoints, groups]


if __name__ == "__main__":
    main()
