"""Current status of a stack for the command line."""

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
    """Status of one part. state: `ready`, `not ready`, `restarting` (it has ended and will be
    restarted) or `ended`. restarts: number of restarts."""

    name: str
    pid: int
    state: str
    restarts: int = 0


@dataclass(frozen=True)
class StackStatus:
    """Status of a stack. running: whether its start is complete and every part is alive or will be
    restarted."""

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
    """The status of a recorded stack; polls each part."""
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
