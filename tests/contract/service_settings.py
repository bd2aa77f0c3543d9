"""The settings that each service reads, to check files that set them."""

import re

from services.collector.settings import CollectorSettings
from services.conductor.settings import ConductorSettings
from services.evaluator.settings import EvaluatorSettings
from services.generator.settings import GeneratorSettings
from services.runtime.settings import ServiceSettings
from services.spark_pipeline.settings import SparkSettings
from services.store.settings import StoreSettings

SETTINGS: dict[str, type[ServiceSettings]] = {
    "collector": CollectorSettings,
    "conductor": ConductorSettings,
    "console": ServiceSettings,
    "evaluator": EvaluatorSettings,
    "gateway": ServiceSettings,
    "generator": GeneratorSettings,
    "runner": SparkSettings,
    "store": StoreSettings,
    "watcher": ServiceSettings,
}
PREFIX = "TIDEGAUGE_"


def service_of(command: list[str]) -> str:
    """The service that `python -m services.NAME …` starts, or becomes with `--beside NAME`."""
    assert command[:2] in (["python", "-m"], ["python3", "-m"]), command
    if command[2:4] == ["services.collector", "--beside"]:
        return command[4]
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
