"""Topics that are written in transactions: their markers take offsets and are never delivered."""

import pytest
from confluent_kafka import Producer

from schemas.catalogue import Topic
from services.evaluator.run.reader import FETCHING, Reader, end_offsets_by
from services.runtime.kafka import admin_client, assigned_consumer, client_properties, ensure_topics
from tests.integration.local_stack.stand_in import eventually

pytestmark = pytest.mark.integration

TOPIC = "written.in.transactions"


def transaction(producer, *values, commits=True):
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value)
    producer.flush()  # an abort discards what was not sent
    producer.commit_transaction() if commits else producer.abort_transaction()


def test_a_topic_is_read_to_its_end_after_committed_and_aborted_transactions(broker):
    ensure_topics(admin_client(broker, "tests"), [Topic(TOPIC, ())])
    properties = client_properties(broker, "tests") | {"transactional.id": "tests"}
    producer = Producer(properties)
    producer.init_transactions()
    transaction(producer, b"a", b"b")
    transaction(producer, b"c", commits=False)
    consumer = assigned_consumer(broker, "tests", **FETCHING)
    ends = end_offsets_by(admin_client(broker, "tests"))
    reader = Reader(consumer, ends, {TOPIC: (0,)}, (TOPIC,))
    values = []

    def is_read():
        values.extend(one for read in reader.read(100, 0.2) for one in read.batch.values)
        return reader.frontier().positions == {(TOPIC, 0): 5}

    eventually(is_read, "the markers are passed")
    assert values == [b"a", b"b"]
    reader.close()
