"""The settings that each service reads."""

from collections.abc import Iterator

from deploy.local.broker import BrokerSettings
from deploy.local.supervisor import SupervisionSettings
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
OF_THE_STACK = (BrokerSettings, SupervisionSettings)


def known_settings() -> Iterator[str]:
    """Names of all settings, in lower case, each at least once."""
    for kind in (*SETTINGS.values(), *OF_THE_STACK):
        yield from kind.model_fields
