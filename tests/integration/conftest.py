"""Fixtures of all integration tests: one broker for the session, an engine and a browser per
module, a store without a bus."""

from tests.integration.browser import browser
from tests.integration.kafka_broker import broker
from tests.integration.store_engine import engine, engine_folder, engine_to_alter, module_engine
from tests.integration.store_http import empty

__all__ = [
    "broker",
    "browser",
    "empty",
    "engine",
    "engine_folder",
    "engine_to_alter",
    "module_engine",
]
