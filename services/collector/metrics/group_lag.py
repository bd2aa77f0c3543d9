"""Lag of consumer groups, from the broker.

The broker knows the lag only of groups that commit offsets. Tidegauge's services and some engines
keep their offsets themselves.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services.collector.metrics.samples import GAUGE, NoAnswerError, Sample
from services.runtime.group_offsets import LAG, Place, committed_offsets, newest_offsets

NAME: Final = "kafka"
MAX_GROUPS: Final = 200
MAX_PARTITIONS: Final = 5000


def lags(committed: Mapping[str, Mapping[Place, int]], ends: Mapping[Place, int]) -> list[Sample]:
    """Lag of each group by partition, in records.

    committed: committed offset by group; negative if there is none. ends: end offsets, without
    deleted partitions, which have no lag.
    """
    return [
        Sample(
            LAG,
            {"group": group, "topic": topic, "partition": str(partition)},
            GAUGE,
            float(max(0, ends[topic, partition] - offset)),
        )
        for group, offsets in sorted(committed.items())
        for (topic, partition), offset in sorted(offsets.items())
        if offset >= 0 and (topic, partition) in ends
    ]


class ConsumerGroups:
    """All groups of the cluster as a source. connect: makes a client of the cluster."""

    def __init__(self, connect: Callable[[], AdminClient], timeout_s: float) -> None:
        self.name = NAME
        self._connect = connect
        self._admin: AdminClient | None = None
        self._timeout_s = timeout_s

    def ask(self) -> list[Sample]:
        """The current lag of every group. Raises NoAnswerError."""
        self._admin = self._admin or self._connect()
        try:
            return self._lags(self._admin)
        except (KafkaException, FutureTimeoutError) as error:
            # A client that saw the broker die does not find group coordinators again. The future
            # keeps its error and the error's frames keep the client, which would try to reconnect
            # until the next garbage collection.
            self._admin = error.__traceback__ = None
            raise NoAnswerError(f"Kafka did not answer: {str(error) or 'in time'}") from error

    def _lags(self, admin: AdminClient) -> list[Sample]:
        committed = {group: self._committed(admin, group) for group in self._groups(admin)}
        places = {place for offsets in committed.values() for place in offsets}
        return lags(committed, self._ends(admin, places))

    def _groups(self, admin: AdminClient) -> list[str]:
        asked = admin.list_consumer_groups(request_timeout=self._timeout_s)
        found = asked.result(self._timeout_s)
        if found.errors:  # such as a coordinator that is loading
            raise KafkaException(found.errors[0])  # a bare KafkaError, which callers do not handle
        groups = [each.group_id for each in found.valid]
        if len(groups) > MAX_GROUPS:
            raise NoAnswerError(f"there are more than {MAX_GROUPS} consumer groups")
        return groups

    def _committed(self, admin: AdminClient, group: str) -> dict[Place, int]:
        return committed_offsets(admin, group, self._timeout_s)

    def _ends(self, admin: AdminClient, places: set[Place]) -> dict[Place, int]:
        if len(places) > MAX_PARTITIONS:
            raise NoAnswerError(f"groups have offsets of more than {MAX_PARTITIONS} partitions")
        return newest_offsets(admin, places, self._timeout_s)
