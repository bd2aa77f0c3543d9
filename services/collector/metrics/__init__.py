"""External metrics: Prometheus endpoints and the lag of consumer groups."""
