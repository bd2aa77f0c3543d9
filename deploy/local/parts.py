"""What a stack is made of: one row per process, in the order in which they depend on each other.

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
# Of a stack that is left on; the gateway also where a single run needs it.
GATEWAY, WATCHER = "gateway", "watcher"
# Nobody waits for an insert, so the store's work is not to slow down the pipeline that is measured.
NICENESS = {"store": 10}
# What a run needs to begin; the others take up what was said before they were there.
LEADING = ("generator", "runner", "conductor", GATEWAY)


def _nothing_to_prepare(_settings: ServiceSettings, _java: Java) -> None:
    """Most parts need nothing before they start."""


def _nothing_to_do(_settings: ServiceSettings) -> None:
    """Most parts need nothing once they are ready."""


@dataclass(frozen=True)
class Part:
    """One process of a stack.

    command: what to run. ready: whether it serves; asked often, so it must answer within 2 s.
    after: parts that must be ready before this one starts. ports: what it listens on.
    prepare: done before it starts. once_ready: done before those that depend on it start.
    stop_timeout_s: how long it may take from SIGTERM to its end. niceness: how far it gives way to
    other processes, 0 to 19. leads: whether a run cannot begin without it; such a part is started
    at once and told when those before it are ready.
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


KAFKA = Part(
    "kafka",
    command=broker_command,
    ready=broker_ready,
    ports=("kafka", "kafka_controller", "kafka_metrics", "kafka_internal"),
    prepare=prepare_broker,
    once_ready=set_up_broker,
    stop_timeout_s=15.0,
)


def service(name: str, command: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Part:
    """A service of `services/`: its module, ready when its `/health/ready` says so."""
    module = command or (sys.executable, "-m", f"services.{name}")
    return Part(
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
) -> tuple[Part, ...]:
    """The parts of a stack for a single run; the broker only when it is not somebody else's.

    more: further services. is_optimised: whether the broker has the optimising compiler.
    """
    names = (*SERVICES, *more)
    if settings.kafka_bootstrap:
        return tuple(service(name) for name in names)
    kafka = replace(KAFKA, command=partial(broker_command, is_optimised=is_optimised))
    return (kafka, *(service(name, after=("kafka",)) for name in names))


def lasting_parts(settings: ServiceSettings) -> tuple[Part, ...]:
    """The parts of a stack that is left on: every service there is."""
    return stack_parts(settings, (GATEWAY, WATCHER), is_optimised=True)


def answers_ready(host: str, port: int) -> bool:
    """Whether `GET /health/ready` on a port answers 200 within a second."""
    connection = http.client.HTTPConnection(host, port, timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
