"""Measures pipelines outside Tidegauge by their topics; read-only."""
