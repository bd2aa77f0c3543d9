"""Webhook notifications without Grafana, each sent once.

`notice.py` selects events of the bus, `shapes.py` formats them for each receiver, `outbox.py` keeps
unsent ones over restarts, `posting.py` sends, `telling.py` is the thread.
"""
