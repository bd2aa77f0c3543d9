"""How far a watch has read a topic with an open transaction."""

import time

import pytest
from confluent_kafka import Consumer, Producer

from services.runtime.kafka import admin_client
from services.runtime.process import now_ms
from services.watcher.reading import READING, WatchReader
from tests.integration.watched_pipeline import client, make_topics

pytestmark = pytest.mark.integration
PLACE = ("watch_sink", 0)
DEADLINE_S = 400


def read(reader):
    """Read for a short time; the time up to which everything is read."""
    for _, messages in reader.read(1_000, 0.2):
        for one in messages:
            ms = one.timestamp()[1]
            reader.read_until((one.topic(), one.partition()), one.offset(), ms, ms)
    return reader.frontier_ms()


def read_past(reader, time_ms):
    """Read until everything before a time is read."""
    end_s = time.monotonic() + DEADLINE_S
    while (read(reader) or 0) < time_ms:
        assert time.monotonic() < end_s, reader.positions


def test_nothing_is_read_beyond_an_open_transaction(broker):
    make_topics(broker.bootstrap, watch_sink=1)
    properties = client(broker.bootstrap)
    producer = Producer(properties | {"transactional.id": "watch_sink"})
    producer.init_transactions(DEADLINE_S)
    consumer = properties | READING
    reader = WatchReader(lambda: Consumer(consumer), admin_client(broker, "watch"), ("watch_sink",))
    reader.begin({PLACE: 0})
    for commit in (producer.commit_transaction, producer.abort_transaction):
        read_past(reader, now_ms())
        (at,) = reader.positions.values()
        producer.begin_transaction()
        producer.produce("watch_sink", b"open")
        assert producer.flush(DEADLINE_S) == 0
        appended_ms = now_ms()
        while now_ms() < appended_ms + 2_500:
            assert read(reader) <= appended_ms
        assert reader.positions == reader.ends() == {PLACE: at}
        commit(DEADLINE_S)
        read_past(reader, now_ms())
        assert reader.positions == {PLACE: at + 2}  # the record and the marker
    reader.consumer.close()
