"""Topics that are written in transactions: their markers take offsets and are never delivered, and
their records are visible to readers of committed ones from the times that the broker's log has."""

import random
from collections import Counter

import pytest
from confluent_kafka import Producer

from schemas.catalogue import Topic
from services.evaluator.columnar.columns import UNKNOWN
from services.evaluator.run.reader import ALL, FETCHING, Reader, commit_reader, end_offsets_by
from services.runtime.kafka import admin_client, assigned_consumer, client_properties, ensure_topics
from tests.integration.local_stack.stand_in import eventually
from tests.integration.transaction_log import by_brute_force, of_the_log, producer_of
from tests.traffic import input_topics

pytestmark = pytest.mark.integration

TRANSACTIONS, PRODUCERS = 400, 3
TRAFFIC_INPUT = input_topics()[0].name


def transaction(producer, topic, *values, commits=True):
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush()  # an abort discards what was not sent
    producer.commit_transaction() if commits else producer.abort_transaction()


def reader_of(broker, begins, inputs):
    return Reader(
        assigned_consumer(broker, "tests", **FETCHING),
        end_offsets_by(admin_client(broker, "tests")),
        begins,
        inputs,
        commits=commit_reader(broker, ALL.of(begins), inputs),
    )


def test_a_topic_is_read_to_its_end_after_committed_and_aborted_transactions(broker):
    topic = "written.in.transactions"
    ensure_topics(admin_client(broker, "tests"), [Topic(topic, ())])
    producer = producer_of(broker, "tests")
    transaction(producer, topic, b"a", b"b")
    transaction(producer, topic, b"c", commits=False)
    reader = reader_of(broker, {topic: (0,)}, (topic,))
    values = []

    def is_read():
        values.extend(one for read in reader.read(100, 0.2) for one in read.batch.values)
        return reader.frontier().positions == {(topic, 0): 5}

    eventually(is_read, "the markers are passed")
    assert values == [b"a", b"b"]
    reader.close()


def written_at_random(broker, topic):
    """Transactions of several producers at once, some aborted, one fenced off, and records without
    one in the first partition, which begins with a transaction. The second has no transaction."""
    chance = random.Random(20261128)
    producers = [producer_of(broker, f"tests-{number}") for number in range(PRODUCERS)]
    without = Producer(client_properties(broker, "tests") | {"linger.ms": 0})
    open_ones = set()
    for number in range(TRANSACTIONS):
        producer = producers[chance.randrange(PRODUCERS)]
        if producer not in open_ones:
            producer.begin_transaction()
            open_ones.add(producer)
        for value in range(chance.randrange(1, 20)):
            producer.produce(topic, b"%d %d" % (number, value), partition=0)
        producer.flush()
        if number and chance.random() < 0.2:
            without.produce(topic, b"outside", partition=0)
            without.flush()
        without.produce(topic, b"plain", partition=1)
        if chance.random() < 0.6:
            commits = chance.random() < 0.7
            producer.commit_transaction() if commits else producer.abort_transaction()
            open_ones.discard(producer)
    without.flush()
    last = producers[0]
    if last not in open_ones:
        last.begin_transaction()
    last.produce(topic, b"of a producer that is fenced off", partition=0)
    last.flush()
    producer_of(broker, "tests-0")
    for producer in producers[1:]:
        if producer in open_ones:
            producer.commit_transaction()


def test_every_visible_time_and_every_aborted_record_equals_the_log_of_the_broker(broker):
    topic = "written.at.random"
    ensure_topics(admin_client(broker, "tests"), [Topic(topic, (), 2)])
    reader = reader_of(broker, {TRAFFIC_INPUT: (0,), topic: (0, 0)}, (TRAFFIC_INPUT,))
    written_at_random(broker, topic)
    ends = end_offsets_by(admin_client(broker, "tests"))([(topic, 0), (topic, 1)])
    visible, aborted, plain = {}, Counter(), set()

    def is_read():
        for read in reader.read(37, 0.2):
            if read.batch.topic != topic:
                continue  # an input, with records of other tests
            times = read.batch.visible_ms
            for row, message in enumerate(read.messages):
                time_ms = UNKNOWN if times is None else int(times[row])
                if message.partition():
                    plain.add(time_ms)
                else:
                    visible[message.offset()] = time_ms
        frontier = reader.frontier()
        aborted.update(frontier.aborted.get(topic, {}))
        return frontier.positions.items() >= ends.items()

    eventually(is_read, "all is read")
    reader.close()
    expected, gone = by_brute_force(of_the_log(broker, topic, 0))
    assert len(expected) > 1_000
    assert gone.total() > 100
    assert visible == expected
    assert aborted == gone
    assert plain == {UNKNOWN}
