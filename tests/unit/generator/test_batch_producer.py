"""Delivery counts per batch, on messages in librdkafka's layout."""

import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator import batch_producer, librdkafka
from services.generator.batch_producer import BatchProducer, KeyPartitions, PartitionQueues, runs
from services.generator.librdkafka import ClientError, RdKafkaMessage, new_producer
from services.generator.message_batch import MESSAGE
from services.generator.producer_backend import load_properties
from services.generator.settings import GeneratorSettings
from tests.unit.generator.made import a_load

pytestmark = pytest.mark.unit

outcomes = st.lists(st.tuples(st.integers(-1, 4), st.sampled_from([0, 0, 0, -192])), max_size=60)


def counted(batch, in_order):
    messages = (RdKafkaMessage * len(batch))()
    for message, (second, error) in zip(messages, batch, strict=True):
        message.private, message.error = second, error
    size = MESSAGE.itemsize
    base = librdkafka.ctypes.addressof(messages)
    pointers = [base + size * number for number in range(len(batch))]
    return [
        (second, -192 if failed else 0)
        for second, failed, count in runs(pointers, in_order)
        for _ in range(count)
    ]


@given(outcomes)
def test_every_message_is_counted_as_what_it_is(batch):
    assert counted(batch, in_order=False) == batch


@given(outcomes)
def test_so_it_is_by_bisection_when_the_seconds_are_in_order(batch):
    delivered = sorted((second, 0) for second, _ in batch)
    assert counted(delivered, in_order=True) == delivered
    failed = sorted((second, -192) for second, _ in batch)
    assert counted(failed, in_order=True) == failed


def test_the_layout_of_a_message_is_that_of_the_library():
    for name in ("error", "value", "value_bytes", "key", "key_bytes", "private"):
        assert MESSAGE.fields[name][1] == getattr(RdKafkaMessage, name).offset
    assert librdkafka.ctypes.sizeof(RdKafkaMessage) == MESSAGE.itemsize == 72


def test_a_property_that_is_not_known_is_refused_in_words():
    library = librdkafka.load()
    with pytest.raises(ClientError, match='No such configuration property: "colour"'):
        new_producer(library, {"colour": "red"})


def test_acknowledgements_of_all_brokers_come_with_idempotence(tmp_path):
    all_, one = (
        load_properties(GeneratorSettings(generator_acks=a, data=tmp_path), 400)
        for a in ("all", "1")
    )
    assert (all_["enable.idempotence"], all_["acks"]) == (True, "all")
    assert (one["enable.idempotence"], one["acks"]) == (False, "1")


@pytest.fixture(params=[1])
def producing(request, monkeypatch):
    """A producer with a simulated broker, whose thread counts nothing unless messages wait, and the
    outcomes by thread. The parameter is the limit of partitions with messages in flight."""
    monkeypatch.setattr(batch_producer, "COUNT_S", 60)
    library = librdkafka.load()
    batches = next(iter(a_load(400, 1).prepared())).batches
    properties = {"test.mock.num.brokers": 1, "queue.buffering.max.messages": 1000}
    queues = PartitionQueues(request.param, 100, 60)
    producer = BatchProducer(library, properties, {batches[0].topic: 4}, queues, in_order=True)
    counted = Counter()

    def delivered(_second, acknowledged, failed):
        assert not failed
        counted[threading.current_thread().name] += acknowledged

    producer.count_into(delivered)
    yield producer, queues, batches[0], counted
    producer.close()


@pytest.mark.parametrize("producing", [None], indirect=True)
def test_the_caller_counts_deliveries_while_nothing_waits(producing):
    producer, _queues, batch, counted = producing
    assert producer.send(batch, 0, 1) == 1
    assert producer.send(batch, 1, 2) == 2
    deadline_s = time.monotonic() + 30
    while not counted and time.monotonic() < deadline_s:
        producer.count_outcomes()
    assert set(counted) == {"MainThread"}
    assert producer.flush(30) == 0
    assert counted == {"MainThread": 2}


@pytest.mark.parametrize("producing", [None], indirect=True)
def test_a_caller_whose_queue_is_full_counts_all_deliveries(producing, monkeypatch):
    producer, _queues, batch, counted = producing
    monkeypatch.setattr(producer, "_queue_records", 1)
    assert producer.send(batch, 0, 2) == 1
    assert producer.send(batch, 1, 2) == 1
    deadline_s = time.monotonic() + 30
    while not counted and time.monotonic() < deadline_s:
        producer.count_outcomes()
    assert counted == {"MainThread": 1}
    assert producer.send(batch, 1, 2) == 2


def test_messages_that_wait_for_a_delivery_leave_without_the_caller(producing):
    producer, queues, batch, counted = producing
    assert producer.send(batch, 0, len(batch)) == len(batch)
    deadline_s = time.monotonic() + 30
    while queues.waiting and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not queues.waiting
    assert producer.flush(30) == 0
    assert counted["deliveries"] + counted["MainThread"] == len(batch)
    assert counted["deliveries"]


def test_sending_nothing_looks_up_the_partitions_of_all_keys(producing, monkeypatch):
    producer, queues, batch, _counted = producing
    assert producer.send(batch, 0, 0) == 0
    assert not queues.waiting
    monkeypatch.setattr(KeyPartitions, "_more", lambda *_: pytest.fail("looked up again"))
    assert producer.send(batch, 0, 1) == 1


class TwoEvents:
    """The library, with two events of three and five messages of the seconds 1 and 2."""

    def __init__(self):
        self._messages = {1: (RdKafkaMessage * 3)(), 2: (RdKafkaMessage * 5)()}
        for second, messages in self._messages.items():
            for message in messages:
                message.private = second

    def rd_kafka_event_message_count(self, event):
        return len(self._messages[event])

    def rd_kafka_event_message_array(self, event, pointers, count):
        messages = self._messages[event]
        for number in range(count):
            pointers[number] = librdkafka.ctypes.addressof(messages[number])
        time.sleep(0.05)  # another thread runs
        return count

    def rd_kafka_topic_name(self, _topic):
        return b"t"


def test_events_that_two_threads_count_at_once_are_not_mixed_up(producing, monkeypatch):
    """A thread read messages that the other had given back: the process died."""
    producer, queues, _batch, _counted = producing
    seconds = Counter()
    producer.count_into(
        lambda second, acknowledged, _failed: seconds.update({second: acknowledged})
    )
    with monkeypatch.context() as patched:
        patched.setattr(producer, "_library", TwoEvents())
        patched.setattr(queues, "done", lambda *_: None)
        threads = [threading.Thread(target=producer._count_delivered, args=(n,)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seconds == {1: 3, 2: 5}
