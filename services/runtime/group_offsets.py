"""Committed offsets of consumer groups and end offsets of partitions. Reads only."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

LAG: Final = "kafka_consumergroup_lag"
Place = tuple[str, int]
"""Topic and partition."""


def committed_offsets(admin: AdminClient, group: str, timeout_s: float) -> dict[Place, int]:
    """Committed offset of each partition; negative if there is none. Raises KafkaException,
    TimeoutError of concurrent.futures."""
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s
    )
    found = asked[group].result(timeout_s).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if not each.error}


def newest_offsets(
    admin: AdminClient, places: Iterable[Place], timeout_s: float
) -> dict[Place, int]:
    """End offset of each partition, without deleted ones. Raises TimeoutError of
    concurrent.futures."""
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    if not asked:
        return {}
    ends = {}
    for partition, future in admin.list_offsets(asked, request_timeout=timeout_s).items():
        try:
            ends[partition.topic, partition.partition] = future.result(timeout_s).offset
        except KafkaException:
            continue  # the topic was deleted
    return ends
