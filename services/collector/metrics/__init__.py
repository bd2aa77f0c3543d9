"""Figures that others keep: Prometheus endpoints, and the lag of consumer groups."""
