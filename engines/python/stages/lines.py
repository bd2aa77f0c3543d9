"""The lines of JSON that a program says on standard output, and its end."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages.plan import Plan
    from stages.reading import Reading

VALUE_BYTES = 100_000  # of a value that does not decode, how many are told


def say(**line: Any) -> None:
    """One line, at once and whole, whatever thread it comes from."""
    os.write(1, (json.dumps(line) + "\n").encode())


def say_undecodable(topic: str, place: tuple[int, int], value: bytes | None) -> None:
    """Tell of a value that is no record, so that it is kept. place: partition and offset."""
    partition, offset = place
    told = None if value is None else base64.b64encode(value[:VALUE_BYTES]).decode()
    say(
        event="undecodable",
        topic=topic,
        partition=partition,
        offset=offset,
        value=told,
        bytes=len(value or b""),
    )


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
