"""`import tidegauge` in a checkout; the installed package exports the same names."""

from deploy.wheel import ConnectError, Results, Rows, connect

__all__ = ["ConnectError", "Results", "Rows", "connect"]
