"""The parts of a stack: one row per process, in dependency order.

To add a process, add a row. A part's ports are names of `PORT_OFFSETS` in the shared settings.
"""

import http.client
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deploy.local.broker import (
    broker_command,
    broker_ready,
    prepare_broker,
    set_up_broker,
)
from deploy.local.java import Java
from services.runtime.settings import ServiceSettings

READY_TIMEOUT_S = 1.0
SERVICES = ("store", "evaluator", "collector", "generator", "runner", "conductor")
# Only in a stack that stays up; the gateway also for a run that needs it.
GATEWAY, WATCHER = "gateway", "watcher"
# Nothing waits for inserts, so the store must not slow down the measured pipeline.
NICENESS = {"store": 10}
# Parts required at the start of a run; the others read earlier events later.
LEADING = ("generator", "runner", "conductor", GATEWAY)


def _nothing_to_prepare(_settings: ServiceSettings, _java: Java) -> None:
    """For parts without preparation."""


def _nothing_to_do(_settings: ServiceSettings) -> None:
    """For parts without setup after readiness."""


@dataclass(frozen=True)
class StackPart:
    """One process of a stack.

    command: command line. ready: whether it serves; polled, so it must return within 2 s. after:
    parts that must be ready before this one starts. ports: listening ports.
    prepare: called before it starts. once_ready: called before its dependents start.
    stop_timeout_s: maximum time from SIGTERM to its end. niceness: 0 to 19. leads: required at the
    start of a run; such a part is started at once and told when its dependencies are ready.
    """

    name: str
    command: Callable[[ServiceSettings, Java], tuple[str, ...]]
    ready: Callable[[ServiceSettings], bool]
    after: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    prepare: Callable[[ServiceSettings, Java], None] = _nothing_to_prepare
    once_ready: Callable[[ServiceSettings], None] = _nothing_to_do
    stop_timeout_s: float = 10.0
    niceness: int = 0
    leads: bool = False


KAFKA = StackPart(
    "kafka",
    command=broker_command,
    ready=broker_ready,
    ports=("kafka", "kafka_controller", "kafka_metrics", "kafka_internal"),
    prepare=prepare_broker,
    once_ready=set_up_broker,
    stop_timeout_s=15.0,
)


def service(name: str, command: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> StackPart:
    """A service of `services/`: started as a module, ready when its `/health/ready` returns 200."""
    module = command or (sys.executable, "-m", f"services.{name}")
    return StackPart(
        name,
        command=lambda _settings, _java: module,
        ready=lambda settings: answers_ready(settings.host, settings.port(name)),
        after=after,
        ports=(name, "gateway_frames") if name == GATEWAY else (name,),
        niceness=NICENESS.get(name, 0),
        leads=name in LEADING,
    )


def stack_parts(
    settings: ServiceSettings, more: Sequence[str] = (), is_optimised: bool = False
) -> tuple[StackPart, ...]:
    """The parts of a stack for a single run, with a broker unless an external one is used.

    more: further services. is_optimised: whether the broker uses C2.
    """
    names = (*SERVICES, *more)
    if settings.kafka_bootstrap:
        return tuple(service(name) for name in names)
    kafka = replace(KAFKA, command=partial(broker_command, is_optimised=is_optimised))
    return (kafka, *(service(name, after=("kafka",)) for name in names))


def lasting_parts(settings: ServiceSettings) -> tuple[StackPart, ...]:
    """The parts of a stack that stays up: all services."""
    return stack_parts(settings, (GATEWAY, WATCHER), is_optimised=True)


def answers_ready(host: str, port: int) -> bool:
    """Whether `GET /health/ready` on a port returns 200 within a second."""
    connection = http.client.HTTPConnection(host, port, timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
