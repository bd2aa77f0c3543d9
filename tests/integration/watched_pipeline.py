"""A pipeline that was not made for Tidegauge, and the expected results of a watch by brute
force."""

import calendar
import heapq
import json
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from services.runtime.kafka import logged
from services.watcher.records import DUPLICATE, EXACT, LATE, LOST, UNEXPECTED
from tests.unit.watcher.one_by_one import verdicts_of

NAMES = {
    EXACT: "exact",
    LATE: "late",
    LOST: "missing",
    DUPLICATE: "duplicate",
    UNEXPECTED: "unexpected",
}
DEADLINE_S = 400


def client(kafka):
    """Client properties, from an address or from properties."""
    return logged("tests") | ({"bootstrap.servers": kafka} if isinstance(kafka, str) else kafka)


def make_topics(kafka, **partitions):
    """Create topics with these numbers of partitions and LogAppendTime."""
    admin = AdminClient(client(kafka))
    config = {"message.timestamp.type": "LogAppendTime"}
    topics = [NewTopic(name, count, 1, config=config) for name, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)


class Load(threading.Thread):
    """Sends numbered records: `record(number)` is topic, key, value and headers of each. `end`
    stops it early."""

    def __init__(self, kafka, record, count, per_second, first=0):
        super().__init__(name="load", daemon=True)
        self._producer = Producer(client(kafka) | {"linger.ms": 5})
        self._first = first
        self._over = threading.Event()
        self._record, self._count, self._per_second = record, count, per_second

    def run(self):
        begin_s = time.monotonic()
        for number in range(self._count):
            due_s = begin_s + number / self._per_second
            while (wait_s := due_s - time.monotonic()) > 0:
                self._producer.poll(min(wait_s, 0.02))
            if self._over.is_set():
                break
            for topic, key, value, headers in self._record(self._first + number):
                self._producer.produce(topic, value, key, headers=headers)
        assert self._producer.flush(DEADLINE_S) == 0

    def end(self):
        """Send no further record, and wait until all are sent."""
        self._over.set()
        self.join()


class Pipeline(threading.Thread):
    """Consumes topics in a group and publishes `made(message)` of each: pairs of a delay in
    seconds, and topic, key, value and headers. into: the cluster of the outputs, if another."""

    def __init__(self, kafka, topics, made, into=None):
        super().__init__(name="pipeline", daemon=True)
        base = client(kafka)
        self._consumer = Consumer(
            base | {"group.id": "shop", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
        )
        self._producer = Producer((client(into) if into else base) | {"linger.ms": 2})
        self._consumer.subscribe(topics)
        self._made = made
        self._later = []
        self._over = threading.Event()
        self._sent = 0

    def run(self):
        while not self._over.is_set() or self._later:
            for message in self._consumer.consume(500, 0.02):
                if message.error() is None:
                    for delay_s, record in self._made(message):
                        self._sent += 1
                        due_s = time.monotonic() + delay_s
                        heapq.heappush(self._later, (due_s, self._sent, record))
            while self._later and self._later[0][0] <= time.monotonic():
                topic, key, value, headers = heapq.heappop(self._later)[2]
                self._producer.produce(topic, value, key, headers=headers)
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0
        self._consumer.close()

    def end(self):
        """Publish the delayed outputs, then stop."""
        self._over.set()
        self.join()


def faulty(number, record):
    """Outputs of a faulty pipeline for a record: some are lost, late or duplicated."""
    if number % 97 == 0:
        return
    delay_s = 2.5 if number % 89 == 0 else 5.0 if number % 113 == 0 else 0.0
    yield delay_s, record
    if number % 101 == 0:
        yield 0.3, record


def everything(kafka, topic):
    """All current records of a topic."""
    consumer = Consumer(client(kafka) | {"group.id": "brute-force", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30) for p in partitions}
    left = {p: high for p, (low, high) in ends.items() if low < high}
    consumer.assign([TopicPartition(topic, p, ends[p][0]) for p in left])
    found, deadline_s = [], time.monotonic() + DEADLINE_S
    while left:
        assert time.monotonic() < deadline_s, left
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                found.append(message)
                if message.offset() + 1 >= left.get(message.partition(), 1 << 62):
                    del left[message.partition()]
    consumer.close()
    return found


def identified(kafka, topics, identity):
    """Identity and time of every record of some topics that has an identity."""
    found = []
    for topic in topics:
        for message in everything(kafka, topic):
            with suppress(ValueError, KeyError, TypeError):
                name = identity(message)
                if name is not None:
                    found.append((name, message.timestamp()[1]))
    return found


def flat(records):
    """Identity, time and window times, from what `identified` returns for windows."""
    return [(name, ms, *times) for (name, *times), ms in records]


def by_run(watch, found):
    """Latencies by run and second, verdicts by run, from `verdicts_of`."""
    latencies, verdicts = defaultdict(Counter), defaultdict(Counter)
    for (verdict, input_ms, output_ms), count in found.items():
        run = (output_ms if input_ms is None else input_ms) // (1000 * watch.run_s)
        verdicts[run][NAMES[verdict]] += count
        if verdict in (EXACT, LATE):
            latencies[run, output_ms // 1000][output_ms - input_ms] += count
    return dict(latencies), dict(verdicts)


def brute_force(watch, inputs, outputs):
    """Expected results of a watch that began with the first record, from pairs (identity, time)."""
    counts_missing = watch.relation.kind != "filter"
    return by_run(watch, verdicts_of(inputs, outputs, watch.relation, counts_missing))


def told_by(records, watch):
    """The same from published events: schema name and fields."""
    latencies, verdicts = defaultdict(Counter), defaultdict(Counter)
    for name, record in records:
        if not record["run_id"].startswith(f"watch-{watch.name}-"):
            continue
        run = run_of(watch, record["run_id"])
        if name == "results_latency":
            counts = dict(zip(record["latencies_ms"], record["counts"], strict=True))
            latencies[run, record["second"] // 1000].update(counts)
        elif name == "results_verdicts":
            for verdict in NAMES.values():
                verdicts[run][verdict] += record[verdict]
    return dict(latencies), dict(verdicts)


def run_of(watch, run_id):
    """Number of a run by its id."""
    begins = run_id.removeprefix(f"watch-{watch.name}-")[:15]
    begin = time.strptime(f"{begins} UTC", "%Y%m%d-%H%M%S %Z")
    return calendar.timegm(begin) // watch.run_s


def cluster_state(kafka, topics):
    """The topics of a cluster, the settings of these and of the brokers, and the groups."""
    admin = AdminClient(client(kafka))
    known = admin.list_topics(timeout=30)
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    asked += [ConfigResource(ResourceType.BROKER, str(broker)) for broker in known.brokers]
    configs = {
        resource.name: {name: entry.value for name, entry in future.result(30).items()}
        for resource, future in admin.describe_configs(asked).items()
    }
    known = known.topics
    groups = {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    return {name: len(known[name].partitions) for name in sorted(known)}, configs, groups


def as_json(**fields):
    """A value in JSON."""
    return json.dumps(fields).encode()
