"""Bounds the number of concurrent queries and of those that wait, and reserves a slot."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from services.store.engine import EngineError

FEWEST: Final = 2
FULL: Final = (
    "Code: 202. DB::Exception: Too many simultaneous queries. (TOO_MANY_SIMULTANEOUS_QUERIES)"
)


class Slots:
    """Slots for `count` queries, at least two. Used in one event loop.

    Others wait up to `wait_s` seconds. Clients without a password leave the last slot free, so that
    they cannot block the console, and at most `most_waiting` of them run or wait.
    """

    def __init__(self, count: int, wait_s: float, most_waiting: int) -> None:
        self.count = max(FEWEST, count)
        self._wait_s = wait_s
        self._all = asyncio.Semaphore(self.count)
        self._anonymous = asyncio.Semaphore(self.count - 1)
        self._places = most_waiting

    @asynccontextmanager
    async def taken(self, is_known: bool) -> AsyncIterator[None]:
        """Hold a slot while the block runs. Raises EngineError if none becomes free in time."""
        async with AsyncExitStack() as held:
            if not is_known:
                if self._places == 0:
                    raise EngineError(FULL)
                self._places -= 1
                held.callback(self._leave)
            try:
                async with asyncio.timeout(self._wait_s):
                    if not is_known:
                        await held.enter_async_context(self._anonymous)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise EngineError(FULL) from None
            yield

    def _leave(self) -> None:
        self._places += 1
