"""Which partition each key goes to, looked up once for every key instead of once for every record.

The numbers are those of Java clients: murmur2 of the key. librdkafka computes them; asking it for
every record costs more than a tenth of what sending the record costs.
"""

from ctypes import CDLL

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.records import Int64s
from services.generator.message_batch import addresses


class KeyPartitions:
    """Partitions of the keys of one table of names, which may grow. One thread."""

    def __init__(self, library: CDLL, partitions: int) -> None:
        self._library = library
        self._count = partitions
        self._known: NDArray[np.int32] = np.zeros(0, np.int32)

    def of(self, keys: Int64s, names: pa.StringArray) -> NDArray[np.int32]:
        """Partition of each message, given the numbers of their keys."""
        if len(names) > len(self._known):
            self._known = np.concatenate([self._known, self._more(names[len(self._known) :])])
        return self._known[keys]

    def _more(self, names: pa.StringArray) -> NDArray[np.int32]:
        starts, sizes = addresses(names, slice(None))
        partition_of = self._library.rd_kafka_msg_partitioner_murmur2
        found = (
            partition_of(None, start, size, self._count, None, None)
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        )
        return np.fromiter(found, np.int32, len(names))


def by_partition(partitions: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each partition that occurs, with the positions of its messages, in their order."""
    if (partitions == partitions[0]).all():  # one message, or a topic of one partition
        return [(int(partitions[0]), np.arange(len(partitions)))]
    order = np.argsort(partitions, kind="stable")
    sorted_partitions = partitions[order]
    first = np.flatnonzero(np.diff(sorted_partitions, prepend=-1))
    parts = np.split(order, first[1:])
    return list(zip(sorted_partitions[first].tolist(), parts, strict=True))
