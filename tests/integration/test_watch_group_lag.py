"""Lag in time of consumer groups: each published age is that of the record with the first offset at
or after the committed one, by a table of all offsets and timestamps of the topics."""

import bisect
import threading
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from services.definitions.watches import keep_watch
from services.runtime.process import now_ms
from services.watcher.group_lag import LAG_S, NEXT_RECORD, OFFSET
from tests.integration.service_process import running_service
from tests.integration.transaction_log import producer_of
from tests.integration.watched_bus import a_watch, await_that
from tests.integration.watched_pipeline import Load, client, everything, make_topics

pytestmark = pytest.mark.integration
DEADLINE_S = 400
GROUPS = ("moving", "standing", "overtaken")
LAG = "kafka_consumergroup_lag"


class Member(threading.Thread):
    """A member of a group: reads at most 200 records per second and commits what it has read."""

    def __init__(self, broker, group, topics):
        super().__init__(name=group, daemon=True)
        self._consumer = Consumer(
            client(broker.bootstrap)
            | {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
            | {"isolation.level": "read_uncommitted"}
        )
        self._topics = list(topics)
        self._over = threading.Event()

    def run(self):
        # From then on it must poll: one that does not holds up the others of its group.
        self._consumer.subscribe(self._topics)
        while not self._over.wait(0.05):
            self._consumer.consume(10, 0.05)
        self._consumer.close()

    def end(self):
        """Commit, and leave the group."""
        self._over.set()
        self.join()


def lags_of(records):
    """Published lags as dicts: group, topic, partition, member, time and the value of each
    series."""
    result = defaultdict(dict)
    for name, record in records:
        if name == "results_metrics" and record["source"] == "watch-lagging":
            for series, labels, value in zip(
                record["names"], record["labels"], record["values"], strict=True
            ):
                key = (record["time"], labels["group"], labels["topic"], labels["partition"])
                result[key] |= {series: value, "member": labels.get("member", "")}
    return result


def commit(broker, group, offsets):
    """Commit offsets of a group without members, by partition of a topic."""
    consumer = Consumer(client(broker.bootstrap) | {"group.id": group})
    places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def in_transactions(broker):
    """Publish to `lag_tx` in transactions, one of them aborted and one, the last, still open."""
    producer = producer_of(broker, "lag_tx")
    for number in range(4):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("lag_tx", b"", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        if number == 1:
            producer.abort_transaction(DEADLINE_S)
        elif number < 3:
            producer.commit_transaction(DEADLINE_S)
    return producer


def test_every_age_is_that_of_the_next_record_by_brute_force(broker, tmp_path):
    """While members join, leave and stop, in transactions, and when records were deleted."""
    make_topics(broker.bootstrap, lag_in=3, lag_out=1, lag_tx=1, lag_end=1)
    admin = AdminClient(client(broker.bootstrap))
    config = {"message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic("lag_made", 1, 1, config=config)])["lag_made"].result(DEADLINE_S)
    watch = a_watch(
        broker,
        "lagging",
        inputs=[{"topic": "lag_in"}],
        outputs=[{"topic": "lag_out"}],
        groups=GROUPS,
    )
    made = Producer(client(broker.bootstrap))
    for number in range(50):
        made.produce("lag_made", b"", timestamp=now_ms() - 3_600_000 + 137 * number)
        made.produce("lag_end", b"")
    assert made.flush(DEADLINE_S) == 0
    open_one = in_transactions(broker)  # offsets 5, 11, 17 are markers; 18 to 22 are open
    commit(broker, "standing", {("lag_tx", 0): 5, ("lag_made", 0): 7, ("lag_end", 0): 50})
    commit(broker, "overtaken", {("lag_made", 0): 3})
    tables = {topic: table(broker, topic) for topic in ("lag_tx", "lag_made", "lag_end")}
    deleted = admin.delete_records([TopicPartition("lag_made", 0, 20)])
    for future in deleted.values():
        future.result(DEADLINE_S)
    del tables["lag_made"]["lag_made", 0][:20]

    def record(number):
        yield "lag_in", b"%d" % number, b"", None

    load = Load(broker.bootstrap, record, count=400_000, per_second=500)
    first, second = (Member(broker, "moving", ["lag_in"]) for _ in range(2))
    with running_service(broker, "watcher", tmp_path):
        keep_watch(tmp_path, watch)
        load.start()
        first.start()

        def seen(records, group, is_so):
            return [
                key for key, lag in lags_of(records).items() if key[1] == group and is_so(key, lag)
            ]

        await_that(broker, lambda records: len(seen(records, "moving", has_age)) >= 6)
        second.start()
        await_that(broker, lambda records: members(records) >= 2)
        commit(broker, "overtaken", {("lag_tx", 0): 17})
        first.end()
        second.end()
        stopped_ms = now_ms()
        load.end()
        records = await_that(
            broker,
            lambda records: (
                len(seen(records, "moving", lambda key, lag: key[0] > stopped_ms)) >= 6
                and seen(records, "overtaken", lambda key, lag: lag[OFFSET] == 17)
            ),
        )
    assert len(open_one) == 0  # its last transaction was open all along
    tables["lag_in"] = table(broker, "lag_in")
    lags = lags_of(records)
    assert_ages(lags, tables)
    by_group = defaultdict(list)
    for key, lag in lags.items():
        by_group[key[1]].append((key, lag))
    assert set(by_group) == set(GROUPS)
    assert len({lag[OFFSET] for _, lag in by_group["moving"]}) >= 6
    expected = {"lag_tx": (5, 6), "lag_made": (7, 20), "lag_end": (50, None)}
    for (_, _, topic, _), lag in by_group["standing"]:
        offset, next_offset = expected[topic]
        assert lag[OFFSET] == offset
        if next_offset is None:
            assert (lag[LAG_S], lag[LAG]) == (0, 0)
        else:
            times = dict(tables[topic][topic, 0])
            assert round(1000 * lag[NEXT_RECORD]) == times[next_offset]
    last = max(key[0] for key, _ in by_group["moving"])
    committed = admin_offsets(admin, "moving")
    assert {key[3]: lag[OFFSET] for key, lag in by_group["moving"] if key[0] == last} == committed


def has_age(_key, lag):
    return lag.get(LAG_S, 0) > 0


def members(records):
    """Number of members of the moving group that had partitions."""
    lags = lags_of(records).items()
    return len({lag["member"] for key, lag in lags if key[1] == "moving"} - {""})


def admin_offsets(admin, group):
    """The committed offsets of a group, by partition as text."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(DEADLINE_S).topic_partitions
    return {str(place.partition): place.offset for place in places}


def table(broker, topic):
    """Offset and timestamp of every record of each partition, also of open transactions."""
    properties = client(broker.bootstrap) | {"isolation.level": "read_uncommitted"}
    result = defaultdict(list)
    for message in everything(properties, topic):
        place = (topic, message.partition())
        result[place].append((message.offset(), message.timestamp()[1]))
    return {place: sorted(rows) for place, rows in result.items()}


def assert_ages(lags, tables):
    """Every lag in time is 0 ms off the table; at the end of a partition it is 0."""
    with_age = 0
    for (time_ms, _, topic, partition), lag in lags.items():
        rows = tables[topic][topic, int(partition)]
        at = bisect.bisect_left(rows, (int(lag[OFFSET]), 0))
        if NEXT_RECORD in lag:
            next_ms = rows[at][1]
            assert round(1000 * lag[NEXT_RECORD]) == next_ms
            assert round(1000 * lag[LAG_S]) == max(0, time_ms - next_ms)
            with_age += 1
        else:
            assert lag[LAG_S] == 0
    assert with_age > 10
