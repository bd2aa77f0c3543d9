"""Checks of files that set settings of services."""

import re

from deploy.local.service_settings import SETTINGS

PREFIX = "TIDEGAUGE_"


def service_of(command: list[str]) -> str:
    """The service that `python -m services.NAME …` starts."""
    assert command[:2] in (["python", "-m"], ["python3", "-m"]), command
    found = re.fullmatch(r"services\.([a-z_]+)", command[2])
    assert found is not None, command
    return found[1]


def unknown_settings(service: str, names: set[str]) -> set[str]:
    """TIDEGAUGE_… names that are not settings of the service."""
    fields = SETTINGS[service].model_fields
    return {
        name
        for name in names
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in fields
    }
