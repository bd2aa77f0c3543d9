"""Commands that the evaluator cannot carry out fail their run, and nothing else."""

import json

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.protocol import Stop
from services.evaluator import current
from services.evaluator.current import CurrentRun
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import Events
from tests.unit.evaluator.records import a_plan
from tests.unit.kafka_clients import Client, Kept

pytestmark = pytest.mark.unit


def failure_of(body):
    """What is said after a `prepare` with this body."""
    producer = Kept()
    run = CurrentRun(EvaluatorSettings(), Events(producer, "evaluator"))
    record = {"command_id": "1", "command": "prepare", "run_id": "run", "body": body}
    run.command(record)
    assert (run.run_id, run.reader) == ("", None)
    ((_topic, event, _key),) = producer.sent
    assert (event["event"], event["run_id"]) == ("failed", "run")
    return json.loads(event["detail"])["reason"]


def test_a_broker_that_does_not_answer(monkeypatch):
    class Silent(Client):
        def list_topics(self, timeout):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    clients = []
    monkeypatch.setattr(
        current, "assigned_consumer", lambda *_: clients.append(Silent()) or clients[-1]
    )
    reason = failure_of(a_plan().model_dump_json())
    assert reason == "The evaluator could not prepare: Failed to get metadata."
    assert [client.closed for client in clients] == [True]


def test_a_body_that_is_none():
    assert failure_of(Stop().model_dump_json()).startswith("The evaluator could not prepare: ")
