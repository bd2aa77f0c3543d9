"""Tells people by webhook what they should know: without a Grafana, each thing once.

`notice.py` says what of the bus is worth telling, `shapes.py` how each receiver wants it,
`outbox.py` keeps what is to be sent over restarts, `posting.py` sends, `telling.py` is the thread.
"""
