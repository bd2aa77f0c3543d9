"""When outputs of the calibration pipeline are published."""

import pytest
from faults import Output

from services.definitions.pipelines import load_pipeline
from tests.unit.engines.rows import program

pytestmark = pytest.mark.unit

ENGINE = program("engines/python")
SETTINGS = {**load_pipeline("calibration").settings, "delay_ms": 10}


class Sent:
    """A producer. `acknowledge` acknowledges everything at the next `poll`."""

    def __init__(self):
        self.values = []
        self._open, self._answered = [], []

    def produce(self, topic, value, _key, on_delivery):
        self.values.append((topic, value))
        self._open.append((topic, on_delivery))

    def acknowledge(self):
        self._answered, self._open = self._open, []

    def poll(self, _timeout_s):
        for topic, delivered in self._answered:
            delivered(None, Delivered(topic))
        self._answered = []


class Delivered:
    """The message of an acknowledgement."""

    def __init__(self, topic):
        self._topic = topic

    def topic(self):
        return self._topic


def made(stage, due_ms, value):
    return Output(f"output.{stage}", 0, due_ms, None, value, {"name": stage})


def test_outputs_wait_for_acknowledgements_of_their_topic_and_then_go_together():
    sent = Sent()
    delayed = ENGINE.Delayed(sent, SETTINGS, None)
    delayed.add(made("parse", 100, b"1"))
    delayed.add(made("parse", 101, b"2"))
    delayed.publish(109)
    assert (sent.values, delayed.wait_s(109)) == ([], 0.001)
    delayed.publish(111)
    assert sent.values == [("output.parse", b"1"), ("output.parse", b"2")]
    assert delayed.wait_s(111) == ENGINE.MAX_WAIT_S

    delayed.add(made("ingest", 101, b"3"))
    for due_ms, value in ((102, b"4"), (103, b"5")):
        delayed.add(made("parse", due_ms, value))
    delayed.publish(120)
    assert sent.values[2:] == [("output.ingest", b"3")]
    assert delayed.wait_s(120) == ENGINE.ACKNOWLEDGED_S
    sent.acknowledge()
    delayed.publish(121)
    assert sent.values[3:] == [("output.parse", b"4"), ("output.parse", b"5")]


def test_records_wait_for_the_workers_in_kafka_not_in_memory():
    workers = ENGINE.Workers(service_ms=4.0)
    assert workers.room(now_ms=1_000.0) == 13  # 50 ms
    done = [workers.done_ms(appended_ms) for appended_ms in (1_000, 1_000, 1_001, 1_100)]
    assert done == [1_004, 1_008, 1_012, 1_104]
    assert workers.room(now_ms=1_062.0) == 2
    assert workers.room(now_ms=1_054.0) <= 0

    unlimited = ENGINE.Workers(service_ms=0.0)
    assert (unlimited.room(1_000.0), unlimited.done_ms(1_000)) == (ENGINE.MAX_BATCH, 0.0)


def test_an_output_is_delayed_from_the_end_of_its_processing():
    sent = Sent()
    delayed = ENGINE.Delayed(sent, SETTINGS, None)
    delayed.add(made("parse", 100, b"1"), 150.0)
    delayed.publish(159)
    assert sent.values == []
    delayed.publish(160)
    assert sent.values == [("output.parse", b"1")]
