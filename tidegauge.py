"""`import tidegauge` in a checkout; an installed Tidegauge has the same names in its package."""

from deploy.wheel import ConnectError, Results, Rows, connect

__all__ = ["ConnectError", "Results", "Rows", "connect"]
