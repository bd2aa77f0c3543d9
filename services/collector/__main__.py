"""The collector: samples resource use of all processes of the stack and of the machine each second,
and every few seconds Prometheus endpoints (such as the broker's) and the lag of consumer groups.

    python -m services.collector
    python -m services.collector --beside runner

It always samples; `prepare` and `stop` set the run that samples are labelled with.

A container sees only its own processes. `--beside` is for the one of the pipelines: the process
becomes that service, and a child of it samples the service, its pipelines and nothing else.
"""

import os
import signal
import sys
import threading
import time

from confluent_kafka import KafkaException

from schemas.protocol import SAMPLER
from services.collector.collecting import Collecting
from services.collector.processes import StackService
from services.collector.settings import CollectorSettings
from services.collector.sources import ConsumerGroups, Endpoint, MetricsSource, SourcePolling
from services.runtime.events import Events, open_commands
from services.runtime.kafka import KafkaUnavailableError, admin_client, event_producer
from services.runtime.logs import configure_logs
from services.runtime.process import limit_arenas
from services.runtime.serving import Service, serving
from services.runtime.settings import load_settings

MAX_WAIT_S = 0.5  # interval at which stop signals are checked
RETRY_S = 5.0


def main(arguments: list[str]) -> None:
    """Serve until told to stop. Exits with one sentence for unknown arguments."""
    match arguments:
        case []:
            _collect()
        case ["--beside", service] if service.isidentifier():
            become(service)
        case _:
            sys.exit("usage: python -m services.collector [--beside SERVICE]")


def _collect() -> None:
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


def become(service: str) -> None:
    """Turn this process into a service, with a child that samples it and ends with it."""
    pid = os.getpid()
    if os.fork():
        os.execv(sys.executable, [sys.executable, "-m", f"services.{service}"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = load_settings(CollectorSettings)
    log = configure_logs(SAMPLER, settings.log_level)
    limit_arenas()
    while os.getppid() == pid:
        try:
            sample(settings, StackService(name=service, pid=pid))
        except (KafkaException, KafkaUnavailableError) as error:
            log.warning("cannot publish samples yet", reason=str(error))
            time.sleep(RETRY_S)


def sample(settings: CollectorSettings, service: StackService) -> None:
    """Sample one service, the parent of this process, until it ends. Raises
    KafkaUnavailableError, KafkaException."""
    events = Events(event_producer(settings, SAMPLER), SAMPLER)
    commands = open_commands(settings, SAMPLER, events)
    collecting = Collecting(settings, events, beside=service)
    collecting.resume()
    ended = threading.Event()

    def wait_s() -> float:
        if os.getppid() != service.pid:
            ended.set()
        return min(collecting.wait_s(), MAX_WAIT_S)

    Service(events, commands, ended).follow(collecting.handle_command, collecting.tick, wait_s)


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
    main(sys.argv[1:])
