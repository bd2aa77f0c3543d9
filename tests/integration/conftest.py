"""Fixtures of all integration tests: one broker for the whole session."""

from tests.integration.kafka_broker import broker

__all__ = ["broker"]
