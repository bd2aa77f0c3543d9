"""Commands that the evaluator cannot execute fail their run, and nothing else."""

import json

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.commands import from_record
from schemas.protocol import RunPlan
from services.definitions.domains import load_domain
from services.evaluator.columnar.column_mapping import NotJudgedError
from services.evaluator.pairing.evaluation import check_judged
from services.evaluator.run.session import EvaluatorSession, RunTopics
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import Events
from tests.unit.evaluator import gem_packs
from tests.unit.evaluator.records import a_plan
from tests.unit.kafka_clients import Kept

pytestmark = pytest.mark.unit


def failure_of(body, topics=None):
    """The failure published after a `prepare` with this body."""
    producer = Kept()
    topics = topics or RunTopics(EvaluatorSettings())
    run = EvaluatorSession(topics, Events(producer, "evaluator"))
    head = {"command_id": "1", "run_id": "run", "issued_at": 1, "producer": "conductor"}
    run.command(from_record(head | {"command": "prepare", "body": body}))
    assert (run.run_id, run.reader) == ("", None)
    ((_topic, event, _key),) = producer.sent
    assert (event["event"], event["run_id"]) == ("failed", "run")
    return json.loads(event["detail"])["reason"]


def test_a_broker_that_does_not_answer():
    class SilentTopics(RunTopics):
        def check(self, topics):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    reason = failure_of(a_plan().model_dump_json(), SilentTopics(EvaluatorSettings()))
    assert reason == "The evaluator could not prepare: Failed to get metadata."


def test_a_body_that_is_none():
    assert failure_of("{}").startswith("The evaluator could not prepare: ")


def test_several_evaluators_refuse_a_stage_whose_records_they_do_not_share():
    request = a_plan().request.model_copy(
        update={"domain": load_domain("gem_packs").spec, "published": {"p": ("average",)}}
    )
    with pytest.raises(NotJudgedError, match="key geo, and the records of"):
        check_judged(RunPlan(request=request, start_offsets={}), 2)
    check_judged(a_plan(), 2)


def test_several_evaluators_do_not_share_topics_that_differ_in_partitions():
    request = a_plan().request
    made = {"traffic.flow": (0, 0), "traffic.speed": (0, 0), "output.p.parse": (0,)}
    check_judged(RunPlan(request=request, start_offsets=made), 1)
    check_judged(RunPlan(request=request, start_offsets=made | {"output.p.parse": (0, 0)}), 2)
    with pytest.raises(
        NotJudgedError, match=r"traffic\.flow 2, traffic\.speed 2, output\.p\.parse 1\.$"
    ):
        check_judged(RunPlan(request=request, start_offsets=made), 2)


def test_windows_closed_by_event_time_are_not_shared_by_several_evaluators():
    check_judged(gem_packs.a_plan(), 1)
    with pytest.raises(NotJudgedError, match="cannot judge the stage revenue: its windows close"):
        check_judged(gem_packs.a_plan(), 2)
