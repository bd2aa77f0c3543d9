"""The proxy between a pipeline's Kafka clients and a real broker: every version of a fetch, what it
says was handed over, two clients, and a proxy that is killed."""

import asyncio
import os
import random
import signal
import socket
import struct
import threading
import time
from bisect import bisect_left
from contextlib import contextmanager, suppress

import aiokafka
import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import catalogue
from schemas.catalogue import Topic
from services.runner.proxy.__main__ import topic_names
from services.runner.proxy.process import FetchProxy, Orders
from services.runner.proxy.wire import FETCH, NAMED_BY_ID, NEWEST, Answers, Requests
from services.runtime.kafka import admin_client, client_properties, ensure_topics, logged
from services.runtime.process import now_ms
from tests.integration.local_stack.stand_in import eventually
from tests.integration.service_process import Reader

pytestmark = pytest.mark.integration

PARTITIONS, RECORDS = 2, 2_000
FLEXIBLE = 12  # first such version of a fetch


@pytest.fixture
def topic(broker):
    name = f"handed.over.{random.getrandbits(32)}"
    ensure_topics(admin_client(broker, "tests"), [Topic(name, (), PARTITIONS)])
    return name


def started(broker, orders):
    environ = {**os.environ, "TIDEGAUGE_KAFKA_BOOTSTRAP": broker.kafka_bootstrap}
    return FetchProxy(broker, orders, broker.data / "proxy.log", environ)


@contextmanager
def running_proxy(broker, topic, run_id):
    proxy = started(broker, Orders(run_id=run_id, pipeline="p", topics=(topic,)))
    try:
        yield proxy
    finally:
        proxy.stop()


def filled(broker, topic, count=RECORDS):
    """Append times, by partition, of records in both partitions, in batches of all sizes."""
    chance = random.Random(7)
    appended = {partition: [] for partition in range(PARTITIONS)}
    producer = Producer(client_properties(broker, "tests") | {"linger.ms": 1})

    def delivered(error, message):
        assert error is None
        appended[message.partition()].append((message.offset(), message.timestamp()[1]))

    for number in range(count):
        producer.produce(
            topic,
            bytes(chance.randrange(200)),
            partition=number % PARTITIONS,
            on_delivery=delivered,
        )
        if chance.random() < 0.05:
            producer.flush()
    producer.flush()
    return {partition: [time for _, time in sorted(times)] for partition, times in appended.items()}


def handed_over(broker, run_id, topic):
    """Of each partition the highest offsets and their times, as they were published."""
    reader, events = Reader(broker, catalogue.FETCHES), []

    def has_ended():
        reader.read()
        events[:] = reader.records(run_id)
        return events

    eventually(has_ended, "the proxy published")
    found = {partition: ([], []) for partition in range(PARTITIONS)}
    for event in events:
        if event["topic"]:
            assert event["topic"] == topic
            found[event["partition"]][0].extend(event["last_offsets"])
            found[event["partition"]][1].extend(event["handed_ms"])
    return found, events


def test_times_are_between_the_append_and_the_delivery_to_the_client(broker, topic):
    run_id = f"proxy-{topic.rpartition('.')[2]}"
    received = {}
    with running_proxy(broker, topic, run_id) as proxy:
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": run_id,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        filled(broker, topic, PARTITIONS)
        consumer.consume(1, 60)  # so that it reads while records are written
        writing = threading.Thread(target=lambda: received.update(appended=filled(broker, topic)))
        writing.start()
        came = dict.fromkeys([(number, 0) for number in range(PARTITIONS)], now_ms())
        while len(came) < RECORDS + PARTITIONS:
            for message in consumer.consume(500, 1):
                assert message.error() is None
                came[message.partition(), message.offset()] = now_ms()
        consumer.close()
        writing.join()
    found, events = handed_over(broker, run_id, topic)
    assert sum(event["records"] for event in events) >= RECORDS
    assert events[-1]["topic"] == ""
    for partition, (offsets, times) in found.items():
        assert offsets == sorted(set(offsets))
        assert times == sorted(times)
        assert offsets[-1] == len(received["appended"][partition])
        assert len(offsets) > 10
        for offset, appended_ms in enumerate(received["appended"][partition], 1):
            handed_ms = times[bisect_left(offsets, offset)]
            assert appended_ms <= handed_ms <= came[partition, offset]


def test_every_client_reaches_the_broker_only_through_the_proxy(broker, topic):
    filled(broker, topic, 200)
    run_id = f"proxy-{topic.rpartition('.')[2]}"
    with running_proxy(broker, topic, run_id) as proxy:
        admin = AdminClient({**logged("tests"), "bootstrap.servers": proxy.bootstrap})
        nodes = admin.describe_cluster().result(30).nodes
        producer = Producer(
            {**logged("tests"), "bootstrap.servers": proxy.bootstrap, "transactional.id": run_id}
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction", partition=0)
        producer.commit_transaction()
        count = asyncio.run(read_by_aiokafka(proxy.bootstrap, topic, 201))
    assert count == 201
    assert [f"{node.host}:{node.port}" for node in nodes] == [proxy.bootstrap]
    found, _ = handed_over(broker, run_id, topic)
    assert max(found[0][0]) >= 100  # and the marker of the transaction, if it was read
    assert max(found[1][0]) == 99


async def read_by_aiokafka(bootstrap, topic, count):
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign(
            [aiokafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        )
        read = 0
        while read < count:
            read += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return read
    finally:
        await consumer.stop()


def test_a_proxy_that_is_killed_loses_nothing(broker, topic):
    run_id = f"proxy-{topic.rpartition('.')[2]}"
    with running_proxy(broker, topic, run_id) as proxy:
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": run_id,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 100,
            }
        )
        consumer.subscribe([topic])
        filled(broker, topic, 100)
        came = set()

        def read_all(count):
            came.update(
                (m.partition(), m.offset()) for m in consumer.consume(100, 0.2) if not m.error()
            )
            return len(came) == count

        eventually(lambda: read_all(100), "the first records are read")
        proxy.process.kill()
        proxy.process.wait()
        filled(broker, topic, 100)
        proxy.start_again()
        eventually(lambda: read_all(200), "the others are read through the second")
        consumer.close()
    found, _ = handed_over(broker, run_id, topic)
    assert [offsets[-1] for offsets, _ in found.values()] == [99, 99]


@pytest.mark.parametrize("version", range(4, NEWEST[FETCH] + 1))
def test_every_version_of_a_fetch(broker, topic, version):
    """The same request straight to the broker and through the parser, fed byte by byte."""
    filled(broker, topic, 300)
    topic_id = id_of(broker, topic)
    body = fetch_request(version, topic, topic_id)
    header = struct.pack(">hhih", FETCH, version, 77, -1) + (b"\0" if version >= FLEXIBLE else b"")
    request = header + body
    frame = struct.pack(">i", len(request)) + request
    with socket.create_connection((broker.host, broker.port("kafka")), 30) as connection:
        connection.sendall(frame)
        answer = exactly(connection, 4)
        answer += exactly(connection, int.from_bytes(answer))
    answers = Answers(lambda host, port: (host, port))
    requests = Requests(answers)
    assert b"".join(requests.feed(frame[at : at + 1]) for at in range(len(frame))) == frame
    assert b"".join(answers.feed(answer[at : at + 1]) for at in range(len(answer))) == answer
    handed = {each.partition: each for each in answers.take_handed()}
    named = topic_id if version >= NAMED_BY_ID else topic
    assert {each.topic for each in handed.values()} == {named}
    assert {number: (each.last_offset, each.records) for number, each in handed.items()} == {
        0: (149, 150),
        1: (149, 150),
    }


def exactly(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part
        data += part
    return data


def id_of(broker, topic):
    return next(iter(topic_names(broker, [topic])))


def fetch_request(version, topic, topic_id):
    """A fetch of both partitions from their beginning, by Kafka's message definition."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""

    def array(items):
        return (bytes([len(items) + 1]) if flexible else struct.pack(">i", len(items))) + b"".join(
            items
        )

    def text(value):
        raw = value.encode()
        return (bytes([len(raw) + 1]) if flexible else struct.pack(">h", len(raw))) + raw

    partitions = [
        struct.pack(">i", number)
        + (struct.pack(">i", -1) if version >= 9 else b"")
        + struct.pack(">q", 0)
        + (struct.pack(">i", -1) if version >= 12 else b"")
        + (struct.pack(">q", -1) if version >= 5 else b"")
        + struct.pack(">i", 1 << 20)
        + tags
        for number in range(PARTITIONS)
    ]
    named = topic_id if version >= NAMED_BY_ID else text(topic)
    return b"".join(
        (
            b"" if version >= 15 else struct.pack(">i", -1),
            struct.pack(">iiib", 500, 1, 1 << 22, 0),
            struct.pack(">ii", 0, -1) if version >= 7 else b"",
            array([named + array(partitions) + tags]),
            array([]) if version >= 7 else b"",
            text("") if version >= 11 else b"",
            tags,
        )
    )


def test_a_network_is_cut_paused_and_slowed_and_comes_back(broker, topic):
    run_id = f"proxy-{topic.rpartition('.')[2]}"
    orders = Orders(run_id=run_id, pipeline="p", topics=(topic,), slow_ms=700)
    proxy = started(broker, orders)
    fields = {"bootstrap.servers": proxy.bootstrap, "reconnect.backoff.max.ms": 100}
    admin = AdminClient({**logged("tests"), **fields})
    disturbed = psutil.Process(proxy.process.pid)

    def answer_s(timeout_s=60):
        began_s = time.monotonic()
        admin.list_topics(topic, timeout=timeout_s)
        return time.monotonic() - began_s

    def answers():
        with suppress(KafkaException):
            return answer_s(2) > 0
        return False

    try:
        answer_s()
        for begin in (signal.SIGUSR1, signal.SIGSTOP):
            disturbed.send_signal(begin)
            with pytest.raises(KafkaException):
                answer_s(2)
            disturbed.send_signal(signal.SIGCONT)
            eventually(answers, "it answers again")
        disturbed.send_signal(signal.SIGUSR2)
        eventually(lambda: answer_s() >= 0.7, "answers are delayed")
    finally:
        disturbed.send_signal(signal.SIGCONT)
        proxy.stop()
