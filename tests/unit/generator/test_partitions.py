"""Which partition a key goes to."""

import numpy as np
import pyarrow as pa
import pytest

from services.generator import librdkafka
from services.generator.partitions import KeyPartitions, by_partition

pytestmark = pytest.mark.unit

# Java's murmur2 of these, by Kafka's own tests: -973932308, -790332482, -985981536; their lower 31
# bits modulo 7.
KEYS = ("21", "foobar", "a-little-bit-long-string")


def test_keys_go_where_java_clients_send_them():
    library = librdkafka.load()
    assert library is not None
    found = KeyPartitions(library, 7).of(np.array([2, 0, 1, 0]), pa.array(KEYS))
    assert found.tolist() == [1, 3, 0, 3]


def test_keys_that_are_added_later_are_looked_up_too():
    library = librdkafka.load()
    assert library is not None
    partitions = KeyPartitions(library, 7)
    assert partitions.of(np.array([0]), pa.array(KEYS[:1])).tolist() == [3]
    assert partitions.of(np.array([1, 2]), pa.array(KEYS)).tolist() == [0, 1]


def test_messages_of_a_partition_keep_their_order():
    found = by_partition(np.array([3, 0, 3, 1, 0, 3], np.int32))
    assert [(partition, places.tolist()) for partition, places in found] == [
        (0, [1, 4]),
        (1, [3]),
        (3, [0, 2, 5]),
    ]


def test_messages_of_one_partition_stay_together():
    ((partition, places),) = by_partition(np.array([2, 2, 2], np.int32))
    assert (partition, places.tolist()) == (2, [0, 1, 2])


def test_a_single_message_is_a_batch_of_its_own():
    ((partition, places),) = by_partition(np.array([4], np.int32))
    assert (partition, places.tolist()) == (4, [0])
