"""Settings of created topics, and the brokers of their replicas."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from schemas.catalogue import Topic
from services.runtime import kafka
from services.runtime.kafka import KafkaUnavailableError, ensure_topics, topic_config

pytestmark = pytest.mark.unit


def test_a_topic_has_the_brokers_time_and_is_bounded_in_time_and_size():
    topic = Topic("t", ("dead_letter",), retention_s=60, retention_bytes=4_000_000)
    assert topic_config(topic) == {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "60000",
        "retention.bytes": "4000000",
        "segment.bytes": "1000000",
    }


def test_a_segment_is_never_larger_than_256_mebibytes():
    topic = Topic("t", ("dead_letter",), retention_bytes=1 << 40)
    assert topic_config(topic)["segment.bytes"] == "268435456"


def test_the_producers_time_and_other_settings_are_had_by_asking():
    topic = Topic(
        "t", ("dead_letter",), log_append_time=False, config={"cleanup.policy": "compact"}
    )
    config = topic_config(topic)
    assert config["message.timestamp.type"] == "CreateTime"
    assert config["cleanup.policy"] == "compact"


class Cluster:
    """An admin client that sees the numbers of brokers in `joining`, one per call, and then always
    the last one; it records created topics."""

    def __init__(self, *joining, there=()):
        self._joining = list(joining)
        self._topics = dict.fromkeys(there)
        self.replicas = {}

    def list_topics(self, timeout):
        count = self._joining.pop(0) if len(self._joining) > 1 else self._joining[0]
        return SimpleNamespace(brokers=dict.fromkeys(range(count)), topics=dict(self._topics))

    def create_topics(self, wanted, operation_timeout):
        done = Future()
        done.set_result(None)
        for each in wanted:
            self.replicas[each.topic] = each.replica_assignment
            self._topics[each.topic] = None
        return {each.topic: done for each in wanted}

    def delete_topics(self, names, request_timeout):
        done = Future()
        done.set_result(None)
        return {name: self._topics.pop(name) or done for name in names}


TWO = Topic("t", (), partitions=2)


def test_brokers_that_are_still_joining_are_waited_for():
    cluster = Cluster(1, 1, 2, 4)
    ensure_topics(cluster, [TWO], replication=3)
    assert cluster.replicas == {"t": [[0, 1, 2], [0, 1, 2]]}


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        (1, "TIDEGAUGE_REPLICATION is 3, but there is 1 broker"),
        (2, "TIDEGAUGE_REPLICATION is 3, but there are 2 brokers"),
    ],
)
def test_fewer_brokers_than_replicas_are_an_error_and_no_topic(monkeypatch, there, sentence):
    monkeypatch.setattr(kafka, "KAFKA_TIMEOUT_S", 0)
    cluster = Cluster(there)
    with pytest.raises(KafkaUnavailableError) as raised:
        ensure_topics(cluster, [TWO], replication=3)
    assert str(raised.value) == sentence
    assert cluster.replicas == {}


def test_topics_that_are_there_need_no_brokers():
    ensure_topics(Cluster(1, there=["t"]), [TWO], replication=3)


def test_topics_are_deleted_by_prefix():
    cluster = Cluster(1, there=["engine.a.r1.x", "engine.a.r2.x", "output.a"])
    kafka.delete_topics(cluster, ("engine.a.r1", "engine.b.r1"))
    kafka.delete_topics(cluster, ("engine.b.r1",))
    assert [*cluster.list_topics(1).topics] == ["engine.a.r2.x", "output.a"]
