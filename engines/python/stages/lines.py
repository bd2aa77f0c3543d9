"""The lines of JSON that a program says on standard output, and its end."""

import json
import os
import sys
import threading
import time
from typing import Any

from stages.plan import Plan
from stages.reading import Reading


def say(**line: Any) -> None:
    """One line, at once and whole, whatever thread it comes from."""
    os.write(1, (json.dumps(line) + "\n").encode())


def end_with_parent() -> None:
    """End this program at the end of its standard input."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # sys.stdin's lock would hold up an exit
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Progress:
    """Says once a second what was read, of every stage that is published."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        self._stages, self._reading = list(plan.outputs), reading
        self._said_s, self._said_count = time.monotonic(), 0

    def tell(self, **more: int) -> None:
        """Say it if a second has passed."""
        now_s = time.monotonic()
        if now_s - self._said_s < 1:
            return
        rows, self._said_count = self._reading.count - self._said_count, self._reading.count
        for stage in self._stages:
            lag = self._reading.lag
            say(event="progress", stage=stage, input_rows=rows, lag_records=lag, **more)
        self._said_s = now_s
