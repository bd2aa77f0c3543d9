"""Fixtures of all integration tests: one broker for the whole session, an engine per module."""

from tests.integration.kafka_broker import broker
from tests.integration.store_engine import engine, engine_folder, engine_to_alter, module_engine

__all__ = ["broker", "engine", "engine_folder", "engine_to_alter", "module_engine"]
