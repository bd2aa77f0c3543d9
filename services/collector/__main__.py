"""The collector: samples resource use of all processes of the stack and of the machine each second,
and every few seconds Prometheus endpoints (such as the broker's) and the lag of consumer groups.

    python -m services.collector

It always samples; `prepare` and `stop` set the run that samples are labelled with.
"""

from services.collector.collecting import Collecting
from services.collector.settings import CollectorSettings
from services.collector.sources import ConsumerGroups, Endpoint, MetricsSource, SourcePolling
from services.runtime.kafka import admin_client
from services.runtime.logs import configure_logs
from services.runtime.serving import serving
from services.runtime.settings import load_settings

MAX_WAIT_S = 0.5  # interval at which stop signals are checked


def main() -> None:
    """Serve until told to stop."""
    settings = load_settings(CollectorSettings)
    log = configure_logs("collector", settings.log_level)
    with serving(settings, "collector") as service:
        log.info("started", stack=str(settings.stack_path), targets=list(settings.targets))
        watching = SourcePolling(sources(settings), settings.collector_scrape_interval_s, log)
        collecting = Collecting(settings, service.events, watching)
        collecting.resume()
        watching.start()
        service.follow(
            collecting.handle_command, collecting.tick, lambda: min(collecting.wait_s(), MAX_WAIT_S)
        )


def sources(settings: CollectorSettings) -> list[MetricsSource]:
    """All metrics sources."""
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
