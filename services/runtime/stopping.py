"""Graceful stop: SIGTERM and SIGINT set an event that loops check."""

import signal
import threading
from types import FrameType


def stop_on_signals() -> threading.Event:
    """An event that is set at the first SIGTERM or SIGINT. Call from the main thread."""
    stop = threading.Event()

    def request_stop(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)
    return stop
