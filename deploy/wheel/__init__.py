"""Tidegauge as a package: a stream benchmark that people leave running.

import tidegauge

results = tidegauge.connect()
results.runs().pandas()
results.figures().arrow
"""

from .client import ConnectError, Results, Rows, connect

__all__ = ["ConnectError", "Results", "Rows", "connect"]
