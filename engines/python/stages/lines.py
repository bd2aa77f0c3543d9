"""JSON lines on a program's standard output, and the end of the program."""

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

VALUE_BYTES = 100_000  # bytes of an undecodable value to report


def say(**line: Any) -> None:
    """Write one line in a single write, from any thread."""
    os.write(1, (json.dumps(line) + "\n").encode())


def say_undecodable(topic: str, place: tuple[int, int], value: bytes | None) -> None:
    """Report an undecodable value, so that it is stored. place: partition and offset."""
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
    """End this program when its standard input is closed."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # sys.stdin's lock would block the exit
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Progress:
    """Reports once a second the rows read by every published stage."""

    def __init__(self, plan: Plan, reading: Reading) -> None:
        self._stages, self._reading = list(plan.outputs), reading
        self._said_s, self._said_count = time.monotonic(), 0

    def tell(self, **more: int) -> None:
        """Report if a second has passed."""
        now_s = time.monotonic()
        if now_s - self._said_s < 1:
            return
        rows, self._said_count = self._reading.count - self._said_count, self._reading.count
        for stage in self._stages:
            lag = self._reading.lag
            say(event="progress", stage=stage, input_rows=rows, lag_records=lag, **more)
        self._said_s = now_s
