"""Lag of the consumer groups named in a watch. Reads only."""

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services.runtime.group_offsets import LAG, Place, committed_offsets, newest_offsets
from services.watcher.troubles import Trouble

TIMEOUT_S: Final = 5.0
MAX_PARTITIONS: Final = 5_000
_Answers = tuple[list[tuple[str, Place, int]], dict[str, str]]
"""Group, place and lag; and why a group could not be read."""


@dataclass
class GroupLag:
    """Reads the lag of some groups in a thread, so that groups that do not answer delay nothing
    else. troubles: groups that could not be read, each once until it answers."""

    admin: AdminClient
    groups: tuple[str, ...]
    troubles: list[Trouble] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)
    _asked: "Future[_Answers] | None" = None

    def ask(self) -> None:
        """Ask for the lag of all groups, unless the answer to the last request is pending."""
        if self._asked is None:
            self._asked = Future()
            Thread(target=self._read, args=(self._asked,), name="group-lag", daemon=True).start()

    def answer(self) -> dict[str, Any] | None:
        """Fields of a `results.metrics` event without its source, once for each request; None if
        there is nothing."""
        if self._asked is None or not self._asked.done():
            return None
        lags, failed = self._asked.result()
        self._asked = None
        for group in sorted(failed.keys() - self._failed):
            told = {"group": group, "reason": failed[group]}
            self.troubles.append(Trouble("group_not_read", told))
        self._failed = set(failed)
        if not lags:
            return None
        count = len(lags)
        return {
            "interval_s": None,
            "names": [LAG] * count,
            "labels": [
                {"group": group, "topic": topic, "partition": str(partition)}
                for group, (topic, partition), _ in lags
            ],
            "kinds": ["gauge"] * count,
            "values": [float(lag) for *_, lag in lags],
            "increases": [None] * count,
        }

    def _read(self, asked: "Future[_Answers]") -> None:
        lags: list[tuple[str, Place, int]] = []
        failed: dict[str, str] = {}
        try:
            for group in self.groups:
                try:
                    lags += [(group, *one) for one in sorted(self._lags(group).items())]
                except (KafkaException, FutureTimeoutError) as error:
                    failed[group] = str(error) or "Kafka did not report it in time"
            asked.set_result((lags, failed))
        except Exception as error:  # raised again by `answer`
            asked.set_exception(error)

    def _lags(self, group: str) -> dict[Place, int]:
        told = list(committed_offsets(self.admin, group, TIMEOUT_S).items())[:MAX_PARTITIONS]
        committed = {place: offset for place, offset in told if offset >= 0}
        ends = newest_offsets(self.admin, committed, TIMEOUT_S)
        return {place: max(0, end - committed[place]) for place, end in ends.items()}
