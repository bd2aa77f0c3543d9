"""A watch of a topic that is written in transactions: how far it has read, from when consumers of
committed records had its outputs, and how many were aborted, as the broker's log has it."""

import json
import random
import threading
import time
from collections import Counter, defaultdict

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from services.definitions.watches import end_watch, keep_watch, position_path
from services.runtime.kafka import admin_client, client_properties
from services.runtime.process import now_ms
from services.runtime.transactions import CommitReader
from services.watcher.reading import READING, WatchReader
from services.watcher.records import NONE_MS
from tests.integration.service_process import running_service
from tests.integration.test_watch import process_of
from tests.integration.transaction_log import by_brute_force, of_the_log, producer_of
from tests.integration.watched_bus import a_watch, await_that, concluded
from tests.integration.watched_pipeline import client, everything, make_topics, run_of

pytestmark = pytest.mark.integration
PLACE = ("watch_sink", 0)
DEADLINE_S = 400
PATIENT = {"deadline_ms": 1_000, "give_up_ms": 100_000, "remember_ms": 200_000}
PRODUCERS, PARTITIONS = 3, 2
LIMIT = "output.visible.max_ms <= 0"


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


def test_with_times_of_producers_markers_have_the_clock_of_the_broker_and_nothing_is_visible(
    broker,
):
    """Otherwise a latency would be the difference of two clocks."""
    topic = "tx_by_producers"
    config = {"message.timestamp.type": "CreateTime"}
    admin = admin_client(broker, "watch")
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        future.result(DEADLINE_S)
    producer = producer_of(broker, "tx_by_producers")
    began_ms, long_ago_ms = now_ms(), 1_600_000_000_000
    producer.begin_transaction()
    producer.produce(topic, b"", timestamp=long_ago_ms)
    producer.commit_transaction(DEADLINE_S)
    commits = CommitReader(client_properties(broker, "tests"), {})
    consumer = client(broker.bootstrap) | READING
    reader = WatchReader(
        lambda: Consumer(consumer), admin, (topic,), outputs=(topic,), commits=commits
    )
    reader.begin({(topic, 0): 0})
    visible, end_s = [], time.monotonic() + DEADLINE_S
    while not visible:
        assert time.monotonic() < end_s
        for of, messages in reader.read(1_000, 0.2):
            visible += reader.visible_ms(of, messages).tolist()
    record, marker = of_the_log(broker, topic, 0)
    assert (record.max_timestamp, marker.is_control_batch) == (long_ago_ms, True)
    assert (record.timestamp_type, marker.timestamp_type) == (0, 0)  # CreateTime
    assert began_ms <= marker.max_timestamp <= now_ms()
    assert commits.has_read
    assert visible == [NONE_MS]
    reader.close()


class TransactionalShop(threading.Thread):
    """Publishes orders and, in transactions of several producers at once, an output of each to the
    first PARTITIONS partitions; outputs of an aborted transaction are published again. Others are
    published without a transaction, some of them to a partition of their own."""

    def __init__(self, broker):
        super().__init__(name="shop", daemon=True)
        self._broker = broker
        self._producers = [producer_of(broker, f"shop-{number}") for number in range(PRODUCERS)]
        self._plain = Producer(client_properties(broker, "tests") | {"linger.ms": 0})
        self._over = threading.Event()
        self._open = {}
        self.orders = 0

    def run(self):
        chance, again = random.Random(20261128), []
        while not self._over.wait(0.01):
            producer = self._producers[chance.randrange(PRODUCERS)]
            self._publish(producer, again + self._ordered(chance.randrange(2, 20)))
            again = []
            if chance.random() < 0.2:
                self._publish_plainly(chance.choice((0, PARTITIONS)))
            if chance.random() < 0.5:
                written = self._open.pop(producer)
                if chance.random() < 0.7:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
                    again = written
        self._publish(self._producers[0], again + self._ordered(2))
        fenced_off = self._open.pop(self._producers[0])
        last = producer_of(self._broker, "shop-0")
        self._publish(last, fenced_off)
        for producer in self._open:
            producer.commit_transaction()

    def end(self):
        """Publish what is open, then stop."""
        self._over.set()
        self.join()

    def _ordered(self, count):
        names = [b"%d" % (self.orders + number) for number in range(count)]
        self.orders += count
        for name in names:
            self._plain.produce("tx_in", b"", name)
        assert self._plain.flush(DEADLINE_S) == 0
        return names

    def _publish(self, producer, names):
        if producer not in self._open:
            producer.begin_transaction()
            self._open[producer] = []
        for name in names:
            producer.produce("tx_out", b"", name, partition=int(name) % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0  # an abort discards what was not sent
        self._open[producer] += names

    def _publish_plainly(self, partition):
        (name,) = self._ordered(1)
        self._plain.produce("tx_out", b"", name, partition=partition)
        assert self._plain.flush(DEADLINE_S) == 0


def expected_of_the_log(broker, watch):
    """Latencies by run, second and definition, and the aborted records by second."""
    ordered_ms = {m.key(): m.timestamp()[1] for m in everything(broker.bootstrap, "tx_in")}
    latencies, aborted = defaultdict(Counter), Counter()
    for partition in range(PARTITIONS + 1):
        visible, gone = by_brute_force(of_the_log(broker, "tx_out", partition))
        aborted += gone
        for batch in of_the_log(broker, "tx_out", partition):
            for record in batch:
                if batch.is_control_batch or record.offset not in visible:
                    continue
                input_ms, output_ms = ordered_ms[record.key], batch.max_timestamp
                run, second = input_ms // (1000 * watch.run_s), output_ms // 1000
                latencies[run, second, "latest"][output_ms - input_ms] += 1
                if partition < PARTITIONS:
                    took_ms = visible[record.offset] - input_ms
                    latencies[run, second, "visible"][took_ms] += 1
    return dict(latencies), aborted


def published_figures(records, watch):
    """The same from published events."""
    latencies, aborted = defaultdict(Counter), Counter()
    for name, record in records:
        if not record["run_id"].startswith(f"watch-{watch.name}-"):
            continue
        if name == "results_latency":
            place = record["second"] // 1000, record["definition"]
            counts = dict(zip(record["latencies_ms"], record["counts"], strict=True))
            latencies[run_of(watch, record["run_id"]), *place].update(counts)
        elif name == "results_throughput" and record["aborted"]:
            assert record["topic"] == "tx_out"
            aborted[record["second"]] += record["aborted"]
    return dict(latencies), aborted


def test_visible_times_and_aborted_records_are_those_of_the_log_though_processes_are_killed(
    broker, tmp_path
):
    make_topics(broker.bootstrap, tx_in=1, tx_out=PARTITIONS + 1)
    watch = a_watch(
        broker,
        "tx",
        inputs=[{"topic": "tx_in"}],
        outputs=[{"topic": "tx_out"}],
        relation=PATIENT,
        thresholds=[LIMIT.removeprefix("output.")],
    )
    keep_watch(tmp_path, watch)
    shop, position = TransactionalShop(broker), position_path(tmp_path, "tx")

    def pairs(records):
        latencies, _ = published_figures(records, watch)
        return sum(each.total() for place, each in latencies.items() if place[2] == "latest")

    with running_service(broker, "watcher", tmp_path) as service:
        shop.start()
        pid = 0
        for _ in range(2):
            watching = process_of(service, "tx", other_than=pid)
            await_that(broker, lambda records: pairs(records) > 100)
            saved_ns, count = position.stat().st_mtime_ns, shop.orders
            await_that(broker, lambda _, since=saved_ns: position.stat().st_mtime_ns > since)
            await_that(broker, lambda records, count=count: pairs(records) > count)
            pid = watching.pid
            watching.kill()
        process_of(service, "tx", other_than=pid)
        shop.end()
        await_that(broker, lambda records: pairs(records) >= shop.orders)
        end_watch(tmp_path, "tx")
        expected, gone = expected_of_the_log(broker, watch)
        runs = {run for run, *_ in expected}
        records = await_that(broker, lambda records: concluded(records, watch).keys() >= runs)
    assert published_figures(records, watch) == (expected, gone)
    assert gone.total() > 100
    most_ms = defaultdict(int)
    for (run, _, definition), counts in expected.items():
        if definition == "visible":
            most_ms[run] = max(most_ms[run], *counts)
    for run, record in concluded(records, watch).items():
        assert record["valid"]
        rows = json.loads(record["detail"])["thresholds"]
        values = [most_ms[run]] if run in most_ms else []  # of a run without outputs
        assert [(row["threshold"], row["value"]) for row in rows] == [
            (LIMIT, each) for each in values
        ]
