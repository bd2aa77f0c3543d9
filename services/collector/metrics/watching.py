"""Polls all sources in a thread of its own, so that a slow one delays no process samples."""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from services.collector.metrics.samples import (
    GAUGE,
    Increases,
    NoAnswerError,
    Sample,
    Source,
)
from services.runtime.clock import now_ms

MAX_WAITING: Final = 100


@dataclass(frozen=True)
class Answer:
    """The samples of a source, or none; the series `up` is 1 or 0, as in Prometheus.

    time_ms: when the answer arrived, epoch milliseconds. interval_s: since the previous answer with
    samples; None for the first. increases: of each sample; see `Increases`.
    """

    source: str
    time_ms: int
    interval_s: float | None
    samples: tuple[Sample, ...]
    increases: tuple[float | None, ...]


class Watched:
    """One source and the state of its last answer. Logs when it becomes available or
    unavailable."""

    def __init__(self, source: Source, log: structlog.stdlib.BoundLogger) -> None:
        self._source = source
        self._log = log.bind(source=source.name)
        self._increases = Increases()
        self._answered_s: float | None = None
        self._is_up = True

    def ask(self) -> Answer:
        """Poll it once."""
        try:
            samples = self._source.ask()
        except NoAnswerError as error:
            if self._is_up:
                self._log.warning("source_down", reason=str(error))
            self._is_up = False
            return Answer(self._source.name, now_ms(), None, (_up(0.0),), (None,))
        if not self._is_up:
            self._log.info("source_up")
        self._is_up = True
        now_s = time.monotonic()
        interval_s = None if self._answered_s is None else now_s - self._answered_s
        self._answered_s = now_s
        whole = (_up(1.0), *samples)
        increases = tuple(self._increases.of(whole))
        return Answer(self._source.name, now_ms(), interval_s, whole, increases)


class Watching:
    """Polls every source every `interval_s` in one thread, one after the other."""

    def __init__(
        self, sources: Sequence[Source], interval_s: float, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._watched = [Watched(source, log) for source in sources]
        self._interval_s = interval_s
        self._answers: queue.Queue[Answer] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._ask_for_ever, name="watching", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def answers(self) -> Iterator[Answer]:
        """Answers since the last call. Raises RuntimeError if the thread has ended."""
        while True:
            try:
                yield self._answers.get_nowait()
            except queue.Empty:
                break
        if not self._thread.is_alive():
            raise RuntimeError("the thread that fetches metrics has stopped")

    def _ask_for_ever(self) -> None:
        next_s = time.monotonic()
        while True:
            for watched in self._watched:
                answer = watched.ask()
                if not self._answers.full():  # if full, the broker is down: leave a gap
                    self._answers.put_nowait(answer)
            # Skip missed polls: the next interval is longer and records its length.
            now_s = time.monotonic()
            next_s += self._interval_s * (1 + max(0.0, now_s - next_s) // self._interval_s)
            time.sleep(max(0.0, next_s - now_s))


def _up(value: float) -> Sample:
    return Sample("up", {}, GAUGE, value)
