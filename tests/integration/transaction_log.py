"""Transactional producers, and what a broker's log files say of their transactions."""

from collections import Counter

from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import Producer

from services.runtime.kafka import client_properties


def producer_of(broker, name):
    result = Producer(client_properties(broker, "tests") | {"transactional.id": name})
    result.init_transactions()
    return result


def of_the_log(broker, topic, partition):
    """The batches of a partition in the broker's files, as Faust's Kafka client parses them."""
    for path in sorted((broker.data / "log" / f"{topic}-{partition}").glob("*.log")):
        batches = MemoryRecords(path.read_bytes())
        while batches.has_next():
            yield batches.next_batch()


def by_brute_force(batches):
    """Visible time of every committed record by offset, and the number of aborted ones by second: a
    record is visible at the first marker, or record, after which no transaction that began at or
    before it is open."""
    begun, written, visible, aborted = {}, {}, {}, Counter()
    waiting = []
    for batch in batches:
        producer, time_ms = batch.producer_id, batch.max_timestamp
        records = list(batch)
        if batch.is_control_batch:
            begun.pop(producer)
            own = written.pop(producer)
            if ControlRecord.parse(records[0].key) == ABORT_MARKER:
                waiting = [offset for offset in waiting if offset not in own]
                aborted.update(own.values())
        else:
            offsets = [record.offset for record in records]
            waiting.extend(offsets)
            if batch.is_transactional:
                begun.setdefault(producer, offsets[0])
                second = time_ms // 1000 * 1000
                written.setdefault(producer, {}).update(dict.fromkeys(offsets, second))
        stable = min(begun.values(), default=records[-1].offset + 1)
        visible |= {offset: time_ms for offset in waiting if offset < stable}
        waiting = [offset for offset in waiting if offset >= stable]
    return visible, aborted
