"""Tidegauge as a package: benchmarks stream processing pipelines from outside, through Kafka.

import tidegauge

results = tidegauge.connect()
results.runs().pandas()
results.figures().arrow
"""

from .client import ConnectError, Results, Rows, connect

__all__ = ["ConnectError", "Results", "Rows", "connect"]
