"""Webhook notifications without Grafana, each sent once.

`notice.py` selects events of the bus, `posting.py` formats and sends them, `telling.py` is the
thread, which keeps unsent ones over restarts.
"""
