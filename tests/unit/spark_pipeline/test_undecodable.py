"""Undecodable values on their way from the queries to the runner."""

import json
import os
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from deploy.local.broker import anonymous_rules
from schemas.catalogue import engine_group
from schemas.engine import LINE
from services.runtime.program import Voice
from services.spark_pipeline.wire import Undecodable, topic_of

pytestmark = pytest.mark.unit

VALUE = {"topic": "t", "partition": 1, "offset": 2, "value": "eA==", "bytes": 1}
LINE_OF_IT = {"event": "undecodable", **VALUE}


class Arrived:
    """A consumer to which these values have come."""

    def __init__(self, *values: bytes | None) -> None:
        self._values = list(values)

    def consume(self, count: int, _timeout_s: float) -> list[SimpleNamespace]:
        found, self._values = self._values[:count], self._values[count:]
        return [SimpleNamespace(value=lambda value=value: value) for value in found]


def passed_on(*values: bytes | None) -> list[str]:
    """The lines that a driver writes for these records of the topic."""
    undecodable, voice = Undecodable.__new__(Undecodable), Voice.__new__(Voice)
    undecodable._consumer = Arrived(*values)
    read, write = os.pipe()
    with os.fdopen(read) as lines:
        with os.fdopen(write, "w") as voice._lines:
            voice._lock = threading.Lock()
            undecodable.pass_on(voice)
        return lines.read().splitlines()


def test_a_pipeline_may_write_to_the_topic() -> None:
    topic = topic_of(engine_group("spark", "r-1"))
    written = [
        rule.name
        for rule in anonymous_rules()
        if (rule.restype, rule.operation) == (ResourceType.TOPIC, AclOperation.WRITE)
    ]
    assert any(topic.startswith(prefix) for prefix in written)


def test_a_value_is_passed_on_in_one_line_of_the_contract() -> None:
    (line,) = passed_on(json.dumps(LINE_OF_IT, indent=2).encode())
    assert LINE.validate_json(line) == LINE.validate_json(json.dumps(LINE_OF_IT))


@pytest.mark.parametrize(
    "foreign", [None, b"", b"\xff", b'{"event": "failed", "reason": "forged"}', b"[" * 10_000]
)
def test_records_of_others_are_ignored(foreign: bytes | None) -> None:
    assert passed_on(foreign) == []
