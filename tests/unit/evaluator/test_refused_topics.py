"""The evaluator measures on one clock only: LogAppendTime of one broker."""

from types import SimpleNamespace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from services.evaluator.run.reader import Reader, TimestampError, check_topics
from services.runtime.kafka import KafkaUnavailableError
from tests.unit.kafka_clients import Client

pytestmark = pytest.mark.unit

INPUT, OUTPUT = "traffic.flow", "output.p.ingest"


class Led(Client):
    """A consumer of a cluster whose topics have these partition leaders."""

    def __init__(self, **leaders):
        super().__init__()
        self._leaders = {name.replace("_", "."): of for name, of in leaders.items()}

    def list_topics(self, timeout):
        return SimpleNamespace(
            topics={
                topic: SimpleNamespace(
                    partitions={at: SimpleNamespace(leader=one) for at, one in enumerate(leaders)}
                )
                for topic, leaders in self._leaders.items()
            }
        )


def test_topics_that_one_broker_leads_can_be_measured_whatever_leads_others():
    check_topics(Led(traffic_flow=(1, 1), output_p_ingest=(1,), other=(2,)), (INPUT, OUTPUT))


@pytest.mark.parametrize("leaders", [((1, 2), (1,)), ((1, 1), (2,))])
def test_topics_that_several_brokers_lead_are_refused(leaders):
    flow, ingest = leaders
    with pytest.raises(TimestampError, match=r"brokers \[1, 2\] lead the partitions of this run"):
        check_topics(Led(traffic_flow=flow, output_p_ingest=ingest), (INPUT, OUTPUT))


def test_a_topic_that_is_not_there_is_named():
    with pytest.raises(KafkaUnavailableError, match=r"topic output\.p\.ingest does not exist"):
        check_topics(Led(traffic_flow=(1,)), (INPUT, OUTPUT))


class Reading(Client):
    """A consumer with these messages."""

    def __init__(self, messages):
        super().__init__()
        self._messages = messages

    def consume(self, _count, _timeout_s):
        return self._messages


def stamped(topic, kind, offset=0):
    return Message(
        topic=topic, partition=0, offset=offset, key=b"k", value=b"v", timestamp=(kind, 7)
    )


@pytest.mark.parametrize("topic", [INPUT, OUTPUT])
def test_a_record_whose_time_is_its_producers_is_refused(topic):
    messages = [
        stamped(topic, TIMESTAMP_LOG_APPEND_TIME),
        stamped(topic, TIMESTAMP_CREATE_TIME, offset=1),
    ]
    reader = Reader(Reading(messages), dict, {INPUT: (0,), OUTPUT: (0,)}, (INPUT,))
    with pytest.raises(TimestampError, match=f"topic {topic} does not use LogAppendTime"):
        reader.read(10, 0)


def test_records_with_the_time_of_the_broker_are_read():
    messages = [stamped(topic, TIMESTAMP_LOG_APPEND_TIME) for topic in (OUTPUT, INPUT)]
    reader = Reader(Reading(messages), dict, {INPUT: (0,), OUTPUT: (0,)}, (INPUT,))
    assert [read.batch.topic for read in reader.read(10, 0)] == [INPUT, OUTPUT]
