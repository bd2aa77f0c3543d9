"""How far the consumer groups that a watch names are behind. Reads only."""

from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from services.watcher.reading import Trouble

LAG: Final = "kafka_consumergroup_lag"
TIMEOUT_S: Final = 5.0
MAX_PARTITIONS: Final = 5_000


@dataclass
class GroupLag:
    """Asks for the lag of some groups. troubles: groups that could not be read, each once."""

    admin: AdminClient
    groups: tuple[str, ...]
    troubles: list[Trouble] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)

    def ask(self) -> dict[str, Any] | None:
        """Fields of an event of `results.metrics` without its source; None where there is none."""
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
                    reason = str(error) or "it was not told in time"
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

    def _lags(self, group: str) -> dict[tuple[str, int], int]:
        asked = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S
        )
        found = asked[group].result(TIMEOUT_S).topic_partitions
        committed = {
            (one.topic, one.partition): one.offset
            for one in found[:MAX_PARTITIONS]
            if not one.error and one.offset >= 0
        }
        if not committed:
            return {}
        ends = self.admin.list_offsets(
            {TopicPartition(*place): OffsetSpec.latest() for place in committed},
            request_timeout=TIMEOUT_S,
        )
        lags = {}
        for place, future in ends.items():
            try:
                end = future.result(TIMEOUT_S).offset
            except KafkaException:
                continue  # the topic is gone, and with it what was committed of it
            where = (place.topic, place.partition)
            lags[where] = max(0, end - committed[where])
        return lags
