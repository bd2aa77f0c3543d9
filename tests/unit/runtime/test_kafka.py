"""Existing topics, as reported by the broker."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from services.runtime.kafka import (
    CONSOLE,
    KafkaUnavailableError,
    NoTopicError,
    admin_client,
    partition_ids,
)
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


class Answering:
    """A consumer with this metadata for the topic `t`."""

    def __init__(self, *partitions, error=None):
        self._topic = SimpleNamespace(partitions=dict.fromkeys(partitions), error=error)

    def list_topics(self, topic, timeout):
        return SimpleNamespace(topics={topic: self._topic})


def test_partitions_are_in_order():
    assert partition_ids(Answering(1, 0, 2), "t") == (0, 1, 2)


def test_a_topic_that_the_broker_does_not_know_is_not_there():
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(NoTopicError, match="topic t does not exist"):
        partition_ids(Answering(error=unknown), "t")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answering(error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE)), "Leader not available"),
        (Answering(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "authorization"),
        (Answering(), "returned no partition"),
    ],
)
def test_any_other_answer_does_not_say_that_there_is_no_topic(answer, reason):
    with pytest.raises(
        KafkaUnavailableError, match=rf"topic t cannot be read: .*{reason}"
    ) as found:
        partition_ids(answer, "t")
    assert not isinstance(found.value, NoTopicError)


@pytest.mark.parametrize(("client", "says"), [("store", True), (CONSOLE, False)])
def test_the_client_of_a_command_writes_nothing_of_its_own_to_the_terminal(client, says, capfd):
    nobody = admin_client(ServiceSettings(kafka_bootstrap="127.0.0.1:1"), client)
    with pytest.raises(KafkaException):
        nobody.list_topics(timeout=1)
    # Clients left over from other tests may write there, too.
    assert ("127.0.0.1:1/" in capfd.readouterr().err) is says
