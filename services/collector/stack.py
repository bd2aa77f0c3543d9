"""Processes started by the deployment, from `stack.json`."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.protocol import COLLECTOR


class StackService(BaseModel):
    """One service: its first process. birth: distinguishes it from others with its pid."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    pid: int
    birth: str | None = None


class _Stack(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    services: tuple[StackService, ...] = ()


class StackFile:
    """Reads the file when it changes. Without one there is only the collector."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._services: tuple[StackService, ...] = ()

    def services(self) -> tuple[StackService, ...]:
        """The current services. An incomplete or invalid file keeps the previous ones."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._services = _Stack.model_validate_json(self._path.read_bytes()).services
                self._seen = seen
        except FileNotFoundError:
            self._services, self._seen = (), None
        except (OSError, ValidationError):
            pass  # retried at the next sample
        if any(service.name == COLLECTOR for service in self._services):
            return self._services
        return (*self._services, StackService(name=COLLECTOR, pid=os.getpid()))
