"""Tidegauge as an installed package: a stream benchmark that people leave running."""
