"""Existing topics, as reported by the broker, and what clients log."""

import logging
from types import SimpleNamespace

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from services.runtime.kafka import (
    CONSOLE,
    ClientLog,
    KafkaUnavailableError,
    NoTopicError,
    admin_client,
    assigned_consumer,
    event_producer,
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


NOWHERE = "127.0.0.1:1"


def without_answer(client):
    """A client that has failed to connect."""
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    return client


def polled(client):
    client.poll(0.1)
    client.close()


OPENED = {
    "admin client": lambda settings: admin_client(settings, "store").poll(0.1),
    "producer": lambda settings: polled(without_answer(event_producer(settings, "store"))),
    "consumer": lambda settings: polled(without_answer(assigned_consumer(settings, "store"))),
    "closed at once": lambda settings: without_answer(assigned_consumer(settings, "s")).close(),
    "command": lambda settings: polled(without_answer(event_producer(settings, CONSOLE))),
}


@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
def test_no_client_writes_a_line_of_its_own(opened, capfd):
    opened(ServiceSettings(kafka_bootstrap=NOWHERE))
    assert capfd.readouterr().err == ""


def test_the_errors_of_a_service_s_client_are_lines_of_its_log():
    with structlog.testing.capture_logs() as lines:
        OPENED["producer"](ServiceSettings(kafka_bootstrap=NOWHERE))
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("kafka_client", "error")
    assert "tidegauge-store" in line["said"]
    assert "Connection refused" in line["said"]


def test_the_errors_of_a_command_s_client_are_not_logged():
    with structlog.testing.capture_logs() as lines:
        OPENED["command"](ServiceSettings(kafka_bootstrap=NOWHERE))
    assert lines == []


def error(said):
    return logging.LogRecord("librdkafka", logging.ERROR, "", 0, said, None, None)


def test_an_error_that_a_client_repeats_is_logged_every_half_minute():
    clock_s = [100.0]
    log = ClientLog(lambda: clock_s[0])
    with structlog.testing.capture_logs() as lines:
        for at_s, said in (
            (100, "a: refused (after 0ms in state CONNECT)"),
            (129, "a: refused (after 3ms in state CONNECT)"),
            (129, "b: refused (after 0ms in state CONNECT)"),
            (130, "a: refused (after 1ms in state CONNECT)"),
        ):
            clock_s[0] = at_s
            log.emit(error(said))
    assert [line["said"] for line in lines] == [
        "a: refused (after 0ms in state CONNECT)",
        "b: refused (after 0ms in state CONNECT)",
        "a: refused (after 1ms in state CONNECT)",
    ]
