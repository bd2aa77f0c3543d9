"""Broker setup, independent of where brokers run."""
