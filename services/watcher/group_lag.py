"""Lag of the consumer groups named in a watch. Reads only."""

from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services.runtime.group_offsets import LAG, Place, committed_offsets, newest_offsets
from services.watcher.troubles import Trouble

TIMEOUT_S: Final = 5.0
MAX_PARTITIONS: Final = 5_000


@dataclass
class GroupLag:
    """Reads the lag of some groups. troubles: groups that could not be read, each once."""

    admin: AdminClient
    groups: tuple[str, ...]
    troubles: list[Trouble] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)

    def ask(self) -> dict[str, Any] | None:
        """Fields of a `results.metrics` event without its source; None if there is nothing."""
        labels: list[dict[str, str]] = []
        values: list[float] = []
        for group in self.groups:
            try:
                for (topic, partition), lag in sorted(self._lags(group).items()):
                    labels.append({"group": group, "topic": topic, "partition": str(partition)})
                    values.append(float(lag))
            except (KafkaException, FutureTimeoutError) as error:
                if group not in self._failed:
                    self._failed.add(group)
                    reason = str(error) or "Kafka did not report it in time"
                    self.troubles.append(
                        Trouble("group_not_read", {"group": group, "reason": reason})
                    )
        if not labels:
            return None
        count = len(labels)
        return {
            "interval_s": None,
            "names": [LAG] * count,
            "labels": labels,
            "kinds": ["gauge"] * count,
            "values": values,
            "increases": [None] * count,
        }

    def _lags(self, group: str) -> dict[Place, int]:
        told = list(committed_offsets(self.admin, group, TIMEOUT_S).items())[:MAX_PARTITIONS]
        committed = {place: offset for place, offset in told if offset >= 0}
        ends = newest_offsets(self.admin, committed, TIMEOUT_S)
        return {place: max(0, end - committed[place]) for place, end in ends.items()}
