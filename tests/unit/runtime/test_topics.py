"""What the broker is told about a topic."""

import pytest

from schemas.catalogue import Topic
from services.runtime.topics import topic_config

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
