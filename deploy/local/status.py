"""What a stack is doing now, as the command line shows it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploy.local.parts import Part
from deploy.local.processes import is_alive
from deploy.local.state import RESTARTING, RUNNING, ServiceState, StackState
from services.runtime.settings import ServiceSettings

READY, NOT_READY, ENDED = "ready", "not ready", "ended"


@dataclass(frozen=True)
class ServiceStatus:
    """One part of a stack now. state: `ready`, `not ready`, `restarting` (it has ended and is
    started again in a moment) or `ended`. restarts: how often it was started again."""

    name: str
    pid: int
    state: str
    restarts: int = 0


@dataclass(frozen=True)
class StackStatus:
    """A stack now. running: whether its start is complete, and every part of it is alive or is
    going to be started again."""

    running: bool
    kafka: str
    clickhouse_http: str
    dashboards: str
    services: tuple[ServiceStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON objects."""
        return asdict(self) | {"services": [asdict(service) for service in self.services]}


def describe(
    settings: ServiceSettings, found: StackState | None, parts: Sequence[Part]
) -> StackStatus:
    """The status of a recorded stack, each part asked."""
    known = {part.name: part for part in parts}
    http = f"http://{settings.host}:{settings.port('store')}"
    services: tuple[ServiceStatus, ...] = ()
    running = False
    if found is not None:
        services = tuple(_service_status(settings, found, s, known) for s in found.services)
        running = found.phase == RUNNING and all(s.state != ENDED for s in services)
    return StackStatus(running, settings.open_bootstrap, http, f"{http}/dashboards/", services)


def _service_status(
    settings: ServiceSettings, found: StackState, service: ServiceState, known: dict[str, Part]
) -> ServiceStatus:
    if is_alive(service.identity):
        ready = service.name in known and known[service.name].ready(settings)
        state = READY if ready else NOT_READY
    else:
        state = RESTARTING if is_alive(found.owner) else ENDED
    return ServiceStatus(service.name, service.pid, state, service.restarts)
