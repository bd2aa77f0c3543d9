"""Bounds the number of concurrent queries, and reserves a slot."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from services.store.engine import EngineError

FEWEST: Final = 2


class Slots:
    """Slots for `count` queries, at least two. Clients without a password leave the last one free,
    so that they cannot block the console."""

    def __init__(self, count: int, wait_s: float) -> None:
        self.count = max(FEWEST, count)
        self._wait_s = wait_s
        self._all = threading.BoundedSemaphore(self.count)
        self._anonymous = threading.BoundedSemaphore(self.count - 1)

    @contextmanager
    def taken(self, is_known: bool) -> Iterator[None]:
        """Hold a slot while the block runs. Raises EngineError if none becomes free in time."""
        kinds = (self._all,) if is_known else (self._anonymous, self._all)
        held = []
        try:
            for kind in kinds:
                if not kind.acquire(timeout=self._wait_s):
                    raise EngineError("Code: 202. DB::Exception: Too many simultaneous queries.")
                held.append(kind)
            yield
        finally:
            for kind in held:
                kind.release()

    def drain(self, timeout_s: float) -> None:
        """Take every slot, waiting up to this time for running queries."""
        until_s = time.monotonic() + timeout_s
        for _place in range(self.count):
            self._all.acquire(timeout=max(0.0, until_s - time.monotonic()))
