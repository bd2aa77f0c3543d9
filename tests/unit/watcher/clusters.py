"""A cluster whose responses are in a table; the fixtures are in conftest.py."""

from concurrent.futures import Future
from types import SimpleNamespace

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message

UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
OTHER = KafkaError.REQUEST_TIMED_OUT
PLACE = ("t", 0)


class Cluster:
    """A topic `t`. id: of the topic; low, end: offsets of each partition; stable: last stable
    offset, if it is not the end; describing, offsets: the error returned to each request, or
    None."""

    def __init__(self):
        self.id, self.low, self.end, self.partitions = "one", 0, 100, 1
        self.stable = self.describing = self.offsets = None
        self.assigned, self.paused, self.messages = {}, set(), []

    # as the administrator

    def describe_topics(self, asked, request_timeout):
        (topic,) = asked.topic_names
        leader = SimpleNamespace(id=1)
        partitions = [SimpleNamespace(id=n, leader=leader) for n in range(self.partitions)]
        found = SimpleNamespace(topic_id=self.id, partitions=partitions)
        return {topic: answer(found, self.describing)}

    def list_offsets(self, asked, isolation_level, request_timeout):
        is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        end = self.end if self.stable is None or not is_committed else self.stable
        return {
            place: answer(SimpleNamespace(offset=end), self.offsets or self.describing)
            for place in asked
        }

    # as the consumer

    def assign(self, places):
        self.assigned = {(one.topic, one.partition): one.offset for one in places}

    def incremental_assign(self, places):
        self.assigned |= {(one.topic, one.partition): one.offset for one in places}

    def incremental_unassign(self, places):
        for one in places:
            del self.assigned[one.topic, one.partition]

    def pause(self, places):
        """As in librdkafka, assigning does not resume."""
        self.paused |= {(one.topic, one.partition) for one in places}

    def resume(self, places):
        self.paused -= {(one.topic, one.partition) for one in places}

    def get_watermark_offsets(self, _place, _timeout_s):
        return self.low, self.end

    def consume(self, _most, _timeout_s):
        taken, self.messages = self.messages, []
        return taken

    def close(self):
        self.assigned = {}


def answer(value, error):
    found = Future()
    if error is None:
        found.set_result(value)
    else:
        found.set_exception(KafkaException(KafkaError(error)))
    return found


def notice(code, offset=0):
    """An error reported by the client for the partition."""
    return Message("t", 0, offset, None, None, None, KafkaError(code), None, 0)


class Time:
    """Advanced by the test only."""

    ms = 1_000_000

    def __call__(self):
        return self.ms


def kinds(reader):
    found = [one.kind for one in reader.troubles]
    reader.troubles.clear()
    return found


def look(reader, clock):
    clock.ms += 10_000
    return reader.frontier_ms()
